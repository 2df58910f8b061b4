"""TensorBoard events: CleanRL's tags, a few a second, every evaluation."""

import builtins
import dataclasses

import numpy as np
import pytest

from hotloop.errors import SettingError
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.learn.ppo import PPOSettings
from hotloop.learn.tensorboard import PERIOD_S, EventLog
from hotloop.learn.training import Trainer
from hotloop.loop.sinks import open_sinks

SMALL = PPOSettings(
    num_envs=4, fragment_steps=16, epochs=1, seed=5, total_steps=1280, evaluate_every=128,
    target_return=1000.0,
)  # fmt: skip


def written(folder):
    """By tag, the steps and values of the events."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    scalars = {
        tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in tags["scalars"]
    }
    return scalars, tags["tensors"]


def logged(folder, settings, step_s=0.1, **arguments):
    """Train with events; every look at the clock takes step_s."""
    looks = iter(np.arange(0, 10**6) * step_s)
    with Trainer(settings, **arguments) as trainer:
        log = EventLog(open_sinks(folder), clock=lambda: float(next(looks)))
        log.begin(trainer)
        trainer.run(lambda _point: log.note(trainer))
        log.end(trainer)
        log.close()
        return trainer.training()


@pytest.fixture(autouse=True)
def installed():
    pytest.importorskip("tensorboard")


def test_events_have_the_tags_of_cleanrl_and_every_evaluation(tmp_path):
    training = logged(tmp_path / "events", SMALL)
    scalars, texts = written(tmp_path / "events")
    assert texts == ["hyperparameters/text_summary"]
    losses = ("policy_loss", "value_loss", "entropy", "approx_kl", "old_approx_kl", "clipfrac")
    charts = ("SPS", "episodic_return", "learning_rate", "updates_per_s", "greedy_return")
    wanted = {f"losses/{n}" for n in (*losses, "explained_variance")} | {
        f"charts/{n}" for n in charts
    }
    final = ("env_steps", "updates", "seconds", "greedy_return", "best_greedy_return")
    wanted |= {f"final/{n}" for n in final}
    assert set(scalars) == wanted
    assert [step for step, _ in scalars["charts/greedy_return"]] == training.env_steps.tolist()
    np.testing.assert_allclose(
        [value for _, value in scalars["charts/greedy_return"]], training.mean_return, rtol=1e-6
    )
    assert all(value > 0 for _, value in scalars["charts/SPS"])
    step, value = scalars["losses/policy_loss"][-1]
    assert step == 1280
    assert value == pytest.approx(training.standing.figures["policy_loss"], rel=1e-5)


def test_events_are_written_by_time_not_by_iteration(tmp_path):
    logged(tmp_path / "events", SMALL, step_s=PERIOD_S / 5)
    scalars, _ = written(tmp_path / "events")
    # 20 iterations of a fifth of the period each, and one more event at the end.
    assert 3 <= len(scalars["losses/entropy"]) <= 7


def test_events_of_a_resumed_training_go_on(tmp_path):
    path = tmp_path / "a.checkpoint"
    first = dataclasses.replace(SMALL, anneal=False, total_steps=640)
    logged(tmp_path / "events", first, checkpoint=path)
    longer = dataclasses.replace(first, total_steps=1280)
    logged(tmp_path / "events", longer, resume=load_checkpoint(path))
    scalars, _ = written(tmp_path / "events")
    steps = [step for step, _ in scalars["charts/greedy_return"]]
    assert steps == list(range(128, 1281, 128))


def test_events_that_cannot_be_written_end_no_training(tmp_path, caplog, monkeypatch):
    with Trainer(SMALL) as trainer:
        log = EventLog(open_sinks(tmp_path / "events"))

        def full(*_args, **_options):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log._sinks._open[0]._writer, "add_scalar", full)
        log.begin(trainer)
        trainer.run(lambda _point: log.note(trainer))
        log.end(trainer)
        log.close()
        log.close()
        assert trainer.training().ended == "steps"
    assert caplog.text.count("it goes on without them") == 1


def test_without_tensorboard_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if "tensorboard" in name:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingError, match=r"pip install 'hotloop\[tensorboard\]'"):
        open_sinks(tmp_path / "events")
    assert not (tmp_path / "events").exists()
