"""You will see 128 epidemics at once, and a policy found that closes and isolates only in time.

    python examples/18_school_closures.py

A simulation is a Gymnasium vector env: each week a policy sees how the epidemic stands, and decides
on schools and on isolation; infections, deaths and what was closed all cost. Weights of a linear
policy are drawn around the best of the last generation (the cross-entropy method), and all weights
of a generation meet the same epidemics, so that luck does not decide between them.
"""

import numpy as np

import hotloop
from hotloop.models.epidemic.covid.env import covid_vector_env

POLICIES, EPIDEMICS, ELITE, GENERATIONS, WEEKS = 32, 4, 6, 30, 12


def decide(weights: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Actions (B, 2) of B policies (B, 2, inputs + 1): schools 0 or 1, isolation level 0 or 2."""
    wanted = (weights[:, :, :-1] * obs[:, None]).sum(-1) + weights[:, :, -1] > 0
    return wanted * np.array([1, 2])


def cost(envs, weights: np.ndarray, seeds: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """What each env's policy cost, and the shares of all stages at the end."""
    obs, _ = envs.reset(seed=seeds)
    total = np.zeros(envs.num_envs)
    for _ in range(WEEKS):
        obs, reward, *_ = envs.step(decide(weights, obs))
        total -= reward
    return total, obs[:, :5]


def main() -> None:
    envs = covid_vector_env(2_000, POLICIES * EPIDEMICS)
    inputs = envs.single_observation_space.shape[0] + 1
    rng = np.random.default_rng(0)
    mean, spread = np.zeros((2, inputs)), np.ones((2, inputs))
    count = envs.num_envs * WEEKS
    for k in hotloop.iterations(range(GENERATIONS), unit="env steps", units=lambda _: count):
        drawn = mean + spread * rng.normal(size=(POLICIES, 2, inputs))
        seeds = [1000 * k + epidemic for epidemic in range(EPIDEMICS)] * POLICIES
        costs, _ = cost(envs, drawn.repeat(EPIDEMICS, axis=0), seeds)
        best = drawn[np.argsort(costs.reshape(POLICIES, EPIDEMICS).mean(axis=1))[:ELITE]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.05
    never, always = np.zeros((2, inputs)), np.zeros((2, inputs))
    never[:, -1], always[:, -1] = -1, 1
    print(f"means of {envs.num_envs} epidemics\npolicy   cost  infected   dead")
    seeds = list(range(10**6, 10**6 + envs.num_envs))  # never met before
    for name, one in (("never", never), ("always", always), ("found", mean)):
        costs, stages = cost(envs, np.tile(one, (envs.num_envs, 1, 1)), seeds)
        infected, dead = 1 - stages[:, 0].mean(), stages[:, 4].mean()
        print(f"{name:6} {costs.mean():6.2f} {infected:9.1%} {dead:6.2%}")
    envs.close()


if __name__ == "__main__":
    main()
