"""After an experiment a learner is bit for bit as after plain training."""

from typing import Any

import numpy as np
import pytest
import torch

from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.loop import drive
from hotloop.loop.control import process_control
from hotloop.simplify.experiment import Experiment
from hotloop.simplify.settings import SimplifySettings

SETTINGS = PPOSettings(num_envs=4, fragment_steps=16, epochs=2)


def bits(learner: PPO) -> dict[str, Any]:
    adam = learner.optimizer.state_dict()["state"]
    envs = [env.unwrapped for env in learner.envs.envs]
    return {
        "weights": learner.policy.flat.detach().numpy().tobytes(),
        "optimiser": {
            key: {name: torch.as_tensor(value).numpy().tobytes() for name, value in state.items()}
            for key, state in adam.items()
        },
        "learning rate": learner.optimizer.param_groups[0]["lr"],
        "actions": str(learner.rng.bit_generator.state),
        "env": [np.asarray(env.state).tobytes() for env in envs],  # type: ignore[attr-defined]
        "env rng": [str(env.np_random.bit_generator.state) for env in envs],
        "obs": learner.collector._obs.tobytes(),
        "steps": learner.progress.env_steps,
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": str(np.random.get_state()),
    }


def learner_of(made: Any) -> PPO:
    return made.body.__self__  # type: ignore[no-any-return]


@pytest.mark.slow
def test_weights_optimiser_generators_and_envs_are_those_of_plain_training() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    measured = PPO(SETTINGS).loop()
    control = process_control()
    experiment = Experiment(control, SimplifySettings(budget=15.0, aa_pairs=1))
    drive(measured, experiment.run(measured), control)
    record = experiment.record
    assert {stage.name for stage in record.stages if stage.replaceable} >= {
        "act",
        "env step",
        "update",
    }
    assert len(record.ns) > 10
    after = bits(learner_of(measured))
    measured.close and measured.close()  # type: ignore[unused-coroutine]

    torch.manual_seed(5)
    np.random.seed(5)
    plain = PPO(SETTINGS).loop()
    for _ in range(record.iterations_kept):
        plain.body()
    assert bits(learner_of(plain)) == after
    plain.close and plain.close()  # type: ignore[unused-coroutine]
