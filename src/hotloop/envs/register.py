"""The ids that Gymnasium knows of this package, for `gymnasium.make` and `gymnasium.make_vec`.

gymnasium.make_vec("hotloop.envs:hotloop/Vec-v0", num_envs=8, env_id="CartPole-v1")
gymnasium.make_vec("hotloop.envs:hotloop/CartPole-v1", num_envs=1024)
gymnasium.make_vec("hotloop.envs:hotloop/Covid-v0", num_envs=64, population=5000)

The part before the colon is imported first: since its version 1.0 Gymnasium asks no installed
package for ids. Entry points are names: nothing else is imported until an env is made.
"""

import gymnasium

_CARTPOLE_STEPS = 500


def register() -> None:
    """Register `hotloop/Vec-v0`, any env on any engine, and the native envs of this package.

    Idempotent.
    """
    if "hotloop/Vec-v0" in gymnasium.registry:
        return
    gymnasium.register(id="hotloop/Vec-v0", vector_entry_point="hotloop.envs.make:make_by_id")
    gymnasium.register(
        id="hotloop/CartPole-v1",
        entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        vector_entry_point="hotloop.envs.cartpole:CartPoleVectorEnv",
        max_episode_steps=_CARTPOLE_STEPS,
    )
    # By name: envs are below the models and do not import them.
    gymnasium.register(
        id="hotloop/Covid-v0",
        entry_point="hotloop.models.epidemic.covid.env:covid_env",
        vector_entry_point="hotloop.models.epidemic.covid.env:covid_vector_env",
    )
