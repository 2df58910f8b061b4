"""You will see a C++ or compiled engine carried by workers, and CartPole solved with it in seconds.

    python examples/13_native_engine.py
    hotloop benchmark examples/13_native_engine.py --seconds 2

Each worker process holds one native vector env of 32 CartPoles and steps it as a whole: EnvPool
where it is installed, else hotloop's own. Every env tries a policy of its own; each generation is
drawn around the best of the last (the cross-entropy method).
"""

import importlib.util
from functools import partial

import numpy as np

import hotloop
from hotloop.envs.cartpole import CartPoleVectorEnv
from hotloop.envs.process import ProcessVectorEnv
from hotloop.integrations.envpool import envpool_vector_env

WORKERS, ENVS, ELITE, GENERATIONS = 2, 32, 8, 120


def main() -> None:
    if importlib.util.find_spec("envpool"):
        engine = partial(envpool_vector_env, "CartPole-v1", ENVS, num_threads=1)
    else:
        engine = partial(CartPoleVectorEnv, ENVS)
    envs = ProcessVectorEnv([engine] * WORKERS)
    rng = np.random.default_rng(0)
    mean, spread = np.zeros(4), np.ones(4)
    count = 500 * envs.num_envs
    for k in hotloop.iterations(range(GENERATIONS), unit="env steps", units=lambda _: count):
        policies = mean + spread * rng.normal(size=(envs.num_envs, 4))
        obs, _ = envs.reset(seed=1000 * k)
        alive, lengths = np.ones(envs.num_envs, bool), np.zeros(envs.num_envs)
        for _ in range(500):
            lengths += alive
            obs, _, terminated, truncated, _ = envs.step(np.int64((obs * policies).sum(axis=1) > 0))
            alive &= ~(terminated | truncated)
        best = policies[np.argsort(lengths)[-ELITE:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.02
        if k % 20 == 19:
            mean_length, best_length = lengths.mean(), lengths.max()
            print(
                f"generation {k:3}  mean episode {mean_length:5.1f} steps, best {best_length:.0f}"
            )
    envs.close()


if __name__ == "__main__":
    main()
