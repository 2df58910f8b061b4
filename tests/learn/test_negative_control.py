"""What is learned comes from the rewards: of rewards that say nothing, nothing is learned."""

import pytest

from hotloop.learn.algorithms import ALGORITHMS, learner_type
from hotloop.learn.evaluate import Evaluation
from support.learner_envs import env_id

SMALL = {"num_envs": 6, "fragment_steps": 10, "backend": "serial", "learning_rate": 3e-3}
OF_ONE = {
    "ppo": {"gamma": 0.5},
    "appo": {"gamma": 0.5},
    "impala": {"gamma": 0.5},
    "apex": {"gamma": 0.5, "learn_after": 50, "batch_size": 32, "target_every": 3},
}


def learned(algorithm: str, env: str, seed: int) -> float:
    """The mean return of 10 steps on the `Bandit`, after a training on an env."""
    kind = learner_type(algorithm)
    settings = kind.settings_type(env_id=env_id(env), seed=seed, **SMALL, **OF_ONE[algorithm])
    learner = kind(settings)
    evaluation = Evaluation.of(env_id("Bandit"))
    try:
        for _ in range(60):
            learner.iterate()
        return float(evaluation(learner.policy).mean())
    finally:
        evaluation.close()
        learner.close()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_rewards_at_random_teach_nothing(algorithm: str) -> None:
    """A policy that knows nothing of the contexts gets all three right once in 27 trainings."""
    assert learned(algorithm, "Bandit", 1) > 9
    assert min(learned(algorithm, "Shuffled", seed) for seed in (1, 2, 3)) < 8
