"""What Gymnasium knows of this package, through its plugins: ids for `gymnasium.make_vec`.

gymnasium.make_vec("hotloop/Vec-v0", num_envs=8, env_id="CartPole-v1", backend="process")
gymnasium.make_vec("hotloop/CartPole-v1", num_envs=1024)
gymnasium.make_vec("hotloop/Covid-v0", num_envs=64, population=5000)
"""

from typing import Any

import gymnasium

from hotloop.envs.vector import VectorEnv

_CARTPOLE_STEPS = 500


def register() -> None:
    """Register `hotloop/Vec-v0`, any env on any engine, and the native ones of this package.

    Idempotent: Gymnasium calls it where this package is installed as its plugin.
    """
    if "hotloop/Vec-v0" in gymnasium.registry:
        return
    gymnasium.register(
        id="hotloop/Vec-v0", vector_entry_point="hotloop.envs.register:make_registered"
    )
    gymnasium.register(
        id="hotloop/CartPole-v1",
        entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point="hotloop.envs.cartpole:CartPoleVectorEnv",
        max_episode_steps=_CARTPOLE_STEPS,
    )
    # By name: envs stand below the models and do not import them.
    gymnasium.register(
        id="hotloop/Covid-v0",
        entry_point="hotloop.models.covid.env:covid_env",
        vector_entry_point="hotloop.models.covid.env:covid_vector_env",
    )


def make_registered(num_envs: int, env_id: str, **settings: Any) -> VectorEnv:
    """`num_envs` envs of an id; settings are those of `hotloop.make_vec`.

    Raises: as `hotloop.make_vec`.
    """
    from hotloop.envs.make import make_vec

    return make_vec(env_id, num_envs, **settings)
