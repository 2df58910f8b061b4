"""From an env id to envs: one without the wrappers that only check, or many as one vector env."""

import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from hotloop.envs.carrier import make_serial
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, TargetError

AnyEnv = gymnasium.Env[Any, Any]
Maker = Callable[[], Any]
BACKENDS = ("serial", "process", "ray", "auto")


def env_spec(env_id: str) -> EnvSpec:
    """Gymnasium's entry for `env_id`; "module:id" imports the module first.

    Raises: TargetError, with the nearest name, if there is none.
    """
    package, colon, name = env_id.rpartition(":")
    try:
        if colon:
            importlib.import_module(package)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        if name.startswith("ALE/") and not colon:
            raise TargetError(
                f"env {env_id!r}: Atari's envs are known once their package is imported: "
                f"'ale_py:{env_id}' does so; pip install 'hotloop[atari]' brings it"
            ) from error
        near = difflib.get_close_matches(env_id, list(gymnasium.registry), n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else "see gymnasium.pprint_registry()"
        raise TargetError(
            f"env {env_id!r}: expected an id that Gymnasium knows, got one that it does not; "
            f"{advice} An env of your own package is 'package:{env_id}'"
        ) from error


def make_env(env_id: str, **kwargs: Any) -> AnyEnv:
    """One env with its time limit, without the passive checker and the order check.

    The two cost a CartPole step 0.4 µs of 6.4 µs and never change a result: a vector env resets
    before it steps, and whoever writes an env checks it elsewhere.
    Raises: TargetError if the id does not exist or the env's own package is missing.
    """
    spec = dataclasses.replace(env_spec(env_id), order_enforce=False)
    try:
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise TargetError(f"env {env_id!r}: a package that it needs is missing: {error}") from error


def make_vec(
    env: str | Maker | Sequence[Maker],
    num_envs: int | None = None,
    *,
    backend: str = "auto",
    num_workers: int | None = None,
    batch_size: int | None = None,
    autoreset_mode: str | AutoresetMode | None = None,
    copy: bool = True,
    splits: int = 1,
    env_kwargs: dict[str, Any] | None = None,
    **engine: Any,
) -> VectorEnv:
    """Several envs as one vector env, in this process, in workers, or on a Ray cluster.

    env: an id; a function that makes an env; or one function for each. A function may make a
    vector env (EnvPool, an env's own `vector_entry_point`, another pool), which is then stepped as
    a whole. num_envs: how often an id or a single function is used; 1 if None.

    backend: "serial", "process", "ray", or "auto", which measures for at most 2 s and says what it
    chose and why in `choice`, and in the log of "hotloop" at level INFO. num_workers: processes or
    actors. batch_size: envs that a `recv` gives, the first that are ready; all if None.
    autoreset_mode: "next_step" if None, "same_step" or "disabled", as in Gymnasium. copy: whether
    returned arrays are the caller's. splits: groups that `recv` gives in turn, 2 for double
    buffering. env_kwargs: for the env of an id. Further settings are the engine's own, such as
    `restarts` and `timeout_s`, see its class.

    Raises: TargetError for envs that do not exist, cannot be made or are not alike; SettingError
    for settings that do not fit.
    """
    fns = env_makers(env, num_envs, env_kwargs or {})
    if backend not in BACKENDS:
        near = difflib.get_close_matches(str(backend), BACKENDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"backend: expected one of {', '.join(BACKENDS)}, got {backend!r}{hint}")
    settings = {
        "num_workers": num_workers,
        "batch_size": batch_size,
        "autoreset_mode": autoreset_mode,
        "copy": copy,
        "splits": splits,
    }
    if backend == "auto":
        from hotloop.envs.auto import choose

        _refuse_unknown(backend, settings | engine, _names("serial") | _names("process"))
        native = native_call(env, len(fns)) if isinstance(env, str) and not env_kwargs else None
        choice = choose(fns, settings | engine, native)
        backend, settings["num_workers"] = choice.backend, choice.num_workers
        # What only worker processes have, such as restarts, says nothing where there are none.
        moot = _names("process") - _names(backend)
        engine = {name: value for name, value in engine.items() if name not in moot}
        envs = _make(backend, fns, settings | engine)
        envs.choice = choice
        return envs
    return _make(backend, fns, settings | engine)


def native_call(env_id: str, num_envs: int) -> str | None:
    """The call that makes a native engine of an env: ours, or the env's own; None without one."""
    package, _, name = env_id.rpartition(":")
    ours = f"hotloop/{name}"
    if not package and ours in gymnasium.registry:
        return f'gymnasium.make_vec("hotloop.envs:{ours}", {num_envs})'
    if env_spec(env_id).vector_entry_point is None:
        return None
    return f'gymnasium.make_vec("{env_id}", {num_envs}, vectorization_mode="vector_entry_point")'


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
        return [partial(make_env, env, **env_kwargs)] * (num_envs or 1)
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
    engine = engine_of(backend)
    known = _names(backend)
    if backend == "serial":
        if settings["num_workers"] not in (None, 1):
            raise SettingError(
                f"num_workers: backend 'serial' has none, got {settings['num_workers']}; use "
                "backend='process'"
            )
        settings = {k: v for k, v in settings.items() if k != "num_workers"}
        engine = make_serial
    _refuse_unknown(backend, settings, known)
    return engine(fns, **settings)


def _refuse_unknown(backend: str, settings: dict[str, Any], known: set[str]) -> None:
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SettingError(
                f"{name}: backend {backend!r} has no such setting; it has "
                f"{', '.join(sorted(known))}{hint}"
            )


def engine_of(backend: str) -> Callable[..., VectorEnv]:
    """The class of a backend; Ray's is imported when it is asked for."""
    if backend == "serial":
        return SerialVectorEnv
    if backend == "process":
        return ProcessVectorEnv
    from hotloop.envs.ray import RayVectorEnv

    return RayVectorEnv


def _names(backend: str) -> set[str]:
    parameters = inspect.signature(engine_of(backend)).parameters
    return set(list(parameters)[1:])
