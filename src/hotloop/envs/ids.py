"""From an env id to one env, without the wrappers that only check; and to its native engine."""

import dataclasses
import importlib
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from hotloop.errors import TargetError, nearest

AnyEnv = gymnasium.Env[Any, Any]


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
        advice = nearest(env_id, gymnasium.registry) or "; see gymnasium.pprint_registry()."
        raise TargetError(
            f"env {env_id!r}: expected an id that Gymnasium knows, got one that it does not"
            f"{advice} An env of your own package is 'package:{env_id}'"
        ) from error


def make_env(env_id: str, **kwargs: Any) -> AnyEnv:
    """One env with its time limit, without the passive checker and the order check.

    The two cost a CartPole step 0.4 µs of 6.4 µs and never change a result: a vector env resets
    before it steps, and an env is checked by its author.
    Raises: TargetError if the id does not exist or the env's own package is missing.
    """
    spec = dataclasses.replace(env_spec(env_id), order_enforce=False)
    try:
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise TargetError(f"env {env_id!r}: a package that it needs is missing: {error}") from error


@dataclass(frozen=True)
class MakeById:
    """A function that makes the env of an id; backends may ask it for the id."""

    env_id: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> AnyEnv:
        """As `make_env`."""
        return make_env(self.env_id, **self.env_kwargs)


def native_call(env_id: str, num_envs: int) -> str | None:
    """The call that makes a native engine of an env: ours, or the env's own; None without one."""
    package, _, name = env_id.rpartition(":")
    ours = f"hotloop/{name}"
    if not package and ours in gymnasium.registry:
        return f'gymnasium.make_vec("hotloop.envs:{ours}", {num_envs})'
    if env_spec(env_id).vector_entry_point is None:
        return None
    return f'gymnasium.make_vec("{env_id}", {num_envs}, vectorization_mode="vector_entry_point")'
