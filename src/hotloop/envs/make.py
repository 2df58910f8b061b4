"""`make_vec`: many envs as one vector env, of an id or of functions, on any backend."""

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from hotloop.envs.auto import choose
from hotloop.envs.backends import AUTO, BACKENDS, find_backend, load_backend, settings_of
from hotloop.envs.ids import MakeById, env_spec, native_call
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, TargetError, nearest

Maker = Callable[[], Any]
# What a setting of `make_vec` is where it asks for nothing: a backend without it need not know.
_NOT_ASKED: dict[str, tuple[Any, ...]] = {
    "num_workers": (None, 1),
    "batch_size": (None,),
    "autoreset_mode": (None,),
    "copy": (True,),
    "splits": (1,),
}


def make_vec(
    env: str | Maker | Sequence[Maker],
    num_envs: int | None = None,
    *,
    backend: str = AUTO,
    num_workers: int | None = None,
    batch_size: int | None = None,
    autoreset_mode: str | AutoresetMode | None = None,
    copy: bool = True,
    splits: int = 1,
    env_kwargs: dict[str, Any] | None = None,
    **settings: Any,
) -> VectorEnv:
    """Several envs as one vector env, in this process, in workers, or on a Ray cluster.

    Args:
        env: an id; a function that makes an env; or one function for each. A function may make a
            vector env (EnvPool, an env's own `vector_entry_point`, another pool), which is then
            stepped as a whole.
        num_envs: how often an id or a single function is used; 1 if None.
        backend: "serial", "process", "ray", "native" (the env's own vector env, for an id), or
            "auto", which measures for at most 2 s and says what it chose and why in `choice`, and
            in the log of "hotloop" at level INFO.
        num_workers: processes or actors.
        batch_size: envs that a `recv` gives, the first that are ready; all if None.
        autoreset_mode: "next_step" if None, "same_step" or "disabled", as in Gymnasium.
        copy: whether returned arrays are the caller's.
        splits: groups that `recv` gives in turn, 2 for double buffering.
        env_kwargs: for the env of an id.
        settings: the backend's own, such as `restarts` and `timeout_s`, see its class.

    Raises: TargetError for envs that do not exist, cannot be made or are not alike; SettingError
    for settings that do not fit; WorkerError where the backend's package is missing.
    """
    fns = env_makers(env, num_envs, env_kwargs or {})
    settings |= {
        "num_workers": num_workers,
        "batch_size": batch_size,
        "autoreset_mode": autoreset_mode,
        "copy": copy,
        "splits": splits,
    }
    if backend != AUTO:
        find_backend(backend)
        return _make(backend, fns, settings)
    possible = settings_of(
        name for name, entry in BACKENDS.items() if entry.candidates and entry.is_installed
    )
    _refuse_unknown(AUTO, settings, possible)
    native = native_call(env, len(fns)) if isinstance(env, str) and not env_kwargs else None
    choice = choose(fns, settings, native)
    # A setting that only other backends have, such as `restarts`, says nothing for this one.
    moot = possible - settings_of([choice.backend])
    settings = {name: value for name, value in settings.items() if name not in moot}
    envs = _make(choice.backend, fns, settings | {"num_workers": choice.num_workers})
    envs.choice = choice
    return envs


def make_by_id(num_envs: int, env_id: str, **settings: Any) -> VectorEnv:
    """What the id `hotloop/Vec-v0` makes; settings as of `make_vec`."""
    return make_vec(env_id, num_envs, **settings)


def env_makers(
    env: str | Maker | Sequence[Maker], num_envs: int | None, env_kwargs: dict[str, Any]
) -> list[Maker]:
    """One function an env.

    Raises: TargetError for an unknown id or what is no function; SettingError for a number that
    does not fit.
    """
    if num_envs is not None and (not isinstance(num_envs, int) or num_envs < 1):
        raise SettingError(f"num_envs: expected a number above 0, got {num_envs!r}")
    if isinstance(env, str):
        env_spec(env)
        return [MakeById(env, env_kwargs)] * (num_envs or 1)
    if env_kwargs:
        raise SettingError(
            f"env_kwargs: expected none with functions, which know their own; got {env_kwargs}"
        )
    if callable(env):
        return [env] * (num_envs or 1)
    fns = list(env)
    for i, fn in enumerate(fns):
        if not callable(fn):
            raise TargetError(
                f"env {i}: expected a function that makes an env, got {type(fn).__qualname__}"
            )
    if not fns or num_envs not in (None, len(fns)):
        raise SettingError(
            f"num_envs: expected {len(fns)}, one for each function given, got {num_envs}"
        )
    return fns


def _make(backend: str, fns: list[Maker], settings: dict[str, Any]) -> VectorEnv:
    make, known = load_backend(backend), settings_of([backend])
    if "num_workers" not in known and settings["num_workers"] not in _NOT_ASKED["num_workers"]:
        raise SettingError(
            f"num_workers: backend {backend!r} has none, got {settings['num_workers']}; use "
            "backend='process'"
        )
    given = {
        name: value
        for name, value in settings.items()
        if name in known or name not in _NOT_ASKED or value not in _NOT_ASKED[name]
    }
    _refuse_unknown(backend, given, known)
    return make(fns, **given)


def _refuse_unknown(backend: str, settings: dict[str, Any], known: set[str]) -> None:
    for name in settings:
        if name not in known:
            names = sorted(known)
            hint = nearest(name, names) or f"; it has {', '.join(names)}"
            raise SettingError(f"{name}: backend {backend!r} has no such setting{hint}")
