"""Training: what ends it, what is saved, and that a resumed one goes on to the same bits."""

import dataclasses
import importlib
import os
import signal

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from hotloop.errors import CheckpointError, SettingError
from hotloop.learn.checkpoint import load_checkpoint
from hotloop.learn.learner import LossError
from hotloop.learn.ppo import PPOSettings
from hotloop.learn.training import Trainer, train
from support.wait import wait_until

SMALL = PPOSettings(
    num_envs=4,
    fragment_steps=16,
    epochs=2,
    seed=5,
    total_steps=640,
    evaluate_every=128,
    target_return=1000.0,  # which nobody reaches
)
WAYS = {
    "serial": {},
    "minibatches": {"minibatches": 4},
    "Gaussian": {"env_id": "Pendulum-v1", "entropy_weight": 0.01},
    "normalised": {"normalise_observations": True, "normalise_values": True},
    "process": {"backend": "process", "num_workers": 2, "minibatches": 2},
    "double buffer": {"backend": "process", "num_workers": 2, "double_buffer": True},
}


class Ends(gymnasium.Env):
    """Rewards are numbers until the fifth episode, if `broken`."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    episodes = steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.steps = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = np.nan if self.episodes == 5 else 1.0
        return np.zeros(1, np.float32), reward, self.steps == 8, False, {}


@pytest.fixture
def turns_nan():
    gymnasium.register("HotloopTurnsNan-v0", Ends)
    yield "HotloopTurnsNan-v0"
    del gymnasium.registry["HotloopTurnsNan-v0"]


@pytest.fixture
def children():
    """The processes that a test starts; all of them must have ended after it."""
    before = set(psutil.Process().children(recursive=True))
    yield
    wait_until(
        lambda: not set(psutil.Process().children(recursive=True)) - before,
        "the worker processes have ended",
    )


def trained(settings, **arguments):
    """Train to the end; returns the training and the bits of what was learned."""
    with Trainer(settings, **arguments) as trainer:
        trainer.run()
        return trainer.training(), trainer.learner.state_dict()


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name, part in one.items():
        if isinstance(part, dict):
            assert_same_bits(part, other[name])
        else:
            np.testing.assert_array_equal(part, other[name], err_msg=name)


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_training_goes_on_to_the_same_bits(way, tmp_path, children):
    settings = dataclasses.replace(SMALL, **WAYS[way])
    every, path = 256, tmp_path / "a.checkpoint"
    whole, state = trained(settings, checkpoint=tmp_path / "b.checkpoint", checkpoint_every=every)
    half = dataclasses.replace(settings, total_steps=256)
    # With annealing the steps in all are part of the course: only where training ends differs.
    with Trainer(settings, checkpoint=path, checkpoint_every=every) as trainer:
        trainer._end = lambda: "steps" if trainer.point.env_steps == half.total_steps else ""
        trainer.run()
    resumed, again = trained(
        settings, checkpoint=path, checkpoint_every=every, resume=load_checkpoint(path)
    )
    assert_same_bits(state, again)
    np.testing.assert_array_equal(whole.env_steps, resumed.env_steps)
    np.testing.assert_array_equal(whole.mean_return, resumed.mean_return)
    assert_same_bits(load_checkpoint(tmp_path / "b.checkpoint").state, load_checkpoint(path).state)


def test_a_resumed_training_may_step_its_envs_elsewhere(tmp_path, children):
    path = tmp_path / "a.checkpoint"
    trained(dataclasses.replace(SMALL, anneal=False, total_steps=256), checkpoint=path)
    longer = dataclasses.replace(SMALL, anneal=False)
    elsewhere = dataclasses.replace(longer, backend="process", num_workers=2)
    here, there = (trained(each, resume=load_checkpoint(path))[1] for each in (longer, elsewhere))
    assert_same_bits(here, there)


def test_the_control_a_resume_from_other_bits_ends_in_other_bits(tmp_path):
    path = tmp_path / "a.checkpoint"
    trained(dataclasses.replace(SMALL, anneal=False, total_steps=256), checkpoint=path)
    longer, saved = dataclasses.replace(SMALL, anneal=False), load_checkpoint(path)
    expected = trained(longer, resume=saved)[1]["policy"]["parameters"]
    for part in ("exp_avg", "generator"):
        changed = load_checkpoint(path)
        if part == "generator":
            changed.state["generator"]["state"]["state"] += 1
        else:
            changed.state["optimizer"][part][:] *= 2
        got = trained(longer, resume=changed)[1]["policy"]["parameters"]
        assert (got != expected).any(), part


def test_the_clock_and_the_curve_go_on(tmp_path):
    path = tmp_path / "a.checkpoint"
    first, _ = trained(dataclasses.replace(SMALL, total_steps=256), checkpoint=path)
    assert (first.ended, first.solved, first.checkpoint) == ("steps", False, path)
    saved = load_checkpoint(path)
    again, _ = trained(SMALL, resume=saved)
    assert again.env_steps.tolist() == [128, 256, 384, 512, 640]
    np.testing.assert_array_equal(again.seconds[:2], first.seconds)
    np.testing.assert_array_equal(again.mean_return[:2], first.mean_return)
    assert (np.diff(again.seconds) > 0).all()
    # The checkpoint's own writing is in the time of the first, and not in that of the second.
    assert first.standing.wall_s >= saved.wall_s > saved.seconds == first.standing.seconds
    assert again.standing.wall_s > saved.wall_s
    assert again.standing.env_steps == 640
    assert again.standing.updates == 10
    assert again.standing.batches == 20
    assert again.standing.episodes > first.standing.episodes > 0
    assert again.standing.training_return > 0


def test_passes_before_a_checkpoint_count_after_it(tmp_path):
    path = tmp_path / "a.checkpoint"
    easy = dataclasses.replace(SMALL, target_return=1.0)
    with Trainer(easy, checkpoint=path) as trainer:
        trainer._end = lambda: "steps" if trainer.point.env_steps == 128 else ""
        trainer.run()
    resumed, _ = trained(easy, resume=load_checkpoint(path))
    assert (resumed.ended, resumed.steps_to_solve) == ("solved", 256)
    assert resumed.seconds_to_solve == resumed.seconds[-1]


def test_a_training_that_has_ended_does_nothing_more(tmp_path):
    path = tmp_path / "a.checkpoint"
    _, state = trained(SMALL, checkpoint=path)
    seen = []
    again = train(SMALL, resume=load_checkpoint(path), on_iteration=seen.append)
    assert (again.ended, seen) == ("steps", [])
    assert_same_bits(state, load_checkpoint(path).state)


def test_the_time_limit_counts_all_of_the_training(tmp_path, monkeypatch):
    path = tmp_path / "a.checkpoint"
    now = iter(range(10**6))
    monkeypatch.setattr("hotloop.learn.training.time.perf_counter", lambda: float(next(now)))
    first, _ = trained(SMALL, checkpoint=path, time_limit_s=3.0)
    assert (first.ended, first.standing.env_steps, first.standing.seconds) == ("time", 192, 3.0)
    again, _ = trained(SMALL, resume=load_checkpoint(path), time_limit_s=5.0)
    assert (again.ended, again.standing.env_steps, again.standing.seconds) == ("time", 320, 5.0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_after_the_iteration_with_a_checkpoint(number, tmp_path):
    path = tmp_path / "a.checkpoint"
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with Trainer(SMALL, checkpoint=path) as trainer:

        def interrupt(point):
            if point.env_steps == 192:
                os.kill(os.getpid(), number)

        with pytest.raises(KeyboardInterrupt):
            trainer.run(interrupt)
        assert trainer.training().ended == "interrupted"
    assert load_checkpoint(path).state["progress"]["env_steps"] == 192
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_second_interrupt_ends_at_once(tmp_path):
    path = tmp_path / "a.checkpoint"
    with Trainer(SMALL, checkpoint=path) as trainer:
        iterate = trainer.learner.iterate

        def interrupted_twice():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            return iterate()

        trainer.learner.iterate = interrupted_twice
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
        assert trainer.learner.progress.env_steps == 0
    assert not path.exists()


def test_a_loss_that_is_no_number_stops_with_its_batch_saved(turns_nan, tmp_path):
    settings = dataclasses.replace(SMALL, env_id=turns_nan)
    path = tmp_path / "a.checkpoint"
    with Trainer(settings, checkpoint=path, checkpoint_every=64) as trainer:
        with pytest.raises(LossError, match=r"expected a finite loss .*/a\.batch\.npz") as raised:
            trainer.run()
        learned = trainer.learner.policy.flat.detach().numpy()
        assert np.isfinite(learned).all()
        assert trainer.training().ended == "failed"
    with np.load(tmp_path / "a.batch.npz", allow_pickle=False) as batch:
        assert set(batch) == set(raised.value.batch) == {
            "obs", "action", "log_prob", "advantage", "target",
        }  # fmt: skip
        assert np.isnan(batch["target"]).any()
        assert batch["obs"].shape == (64, 1)
    # The checkpoint before is whole, and of before.
    assert load_checkpoint(path).state["progress"]["env_steps"] > 0
    with pytest.raises(LossError, match="the error's `batch` holds"):
        train(settings)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": 0.5}, r"gamma: expected 0\.98, as in the checkpoint, got 0\.5"),
        ({"seed": 6}, "seed: expected 5, as in the checkpoint, got 6"),
        ({"minibatches": 2}, "minibatches: expected 1, .* got 2"),
        ({"env_id": "Acrobot-v1"}, "target: expected ppo:CartPole-v1, .* got ppo:Acrobot-v1"),
    ],
)
def test_a_resume_refuses_what_would_change_its_course(changed, message, tmp_path):
    path = tmp_path / "a.checkpoint"
    trained(dataclasses.replace(SMALL, total_steps=64), checkpoint=path)
    with pytest.raises(SettingError, match=message):
        train(dataclasses.replace(SMALL, **changed), resume=load_checkpoint(path))
    with pytest.raises(SettingError, match=r"checkpoint_every: expected 0, .* got 64"):
        train(SMALL, resume=load_checkpoint(path), checkpoint_every=64)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(SettingError, match="checkpoint_every: expected a whole number"):
        Trainer(SMALL, checkpoint_every=-1)
    with pytest.raises(SettingError, match="time_limit: expected a number above 0"):
        Trainer(SMALL, time_limit_s=0)


def test_a_checkpoint_that_cannot_be_written_ends_the_training(tmp_path, children):
    (tmp_path / "file").touch()
    settings = dataclasses.replace(SMALL, backend="process", num_workers=2)
    with (
        pytest.raises(CheckpointError, match=r"could not be written .*--checkpoint"),
        Trainer(settings, checkpoint=tmp_path / "file" / "a", checkpoint_every=64) as trainer,
    ):
        trainer.run()
    assert trainer.training().standing.env_steps == 64


def test_other_versions_are_said(tmp_path, caplog):
    path = tmp_path / "a.checkpoint"
    trained(dataclasses.replace(SMALL, total_steps=64), checkpoint=path)
    saved = load_checkpoint(path)
    older = dataclasses.replace(saved, versions={**saved.versions, "torch": "0.1"})
    train(dataclasses.replace(SMALL, total_steps=128), resume=older)
    assert "torch 0.1, now" in caplog.text


@pytest.mark.parametrize(
    "learner",
    [pytest.param("hotloop.learn.appo", marks=pytest.mark.slow), "hotloop.learn.impala"],
)
def test_a_learner_whose_actors_act_meanwhile_is_saved_and_goes_on(learner, tmp_path, children):
    """Without a promise about bits: the clock, the counts and what was learned go on."""
    module = importlib.import_module(learner)
    kind = getattr(module, f"{learner.rpartition('.')[2].upper()}Settings")
    settings = kind(
        num_envs=4, fragment_steps=8, num_workers=2, total_steps=640, evaluate_every=128,
        target_return=1000.0, seed=5,
    )  # fmt: skip
    path = tmp_path / "a.checkpoint"
    half, state = trained(
        dataclasses.replace(settings, total_steps=256), checkpoint=path, checkpoint_every=128
    )
    assert half.ended == "steps"
    assert_same_bits(load_checkpoint(path).state, state)
    saved = load_checkpoint(path)
    with Trainer(settings, checkpoint=path, checkpoint_every=128, resume=saved) as trainer:
        assert_same_bits(trainer.learner.state_dict(), state)
        trainer.run()
        whole = trainer.training()
    assert whole.standing.env_steps >= 640 > half.standing.env_steps >= 256
    assert whole.env_steps[: len(half.env_steps)].tolist() == half.env_steps.tolist()
    assert whole.seconds[-1] > half.seconds[-1]
    assert {
        "lag_mean",
        "lag_max",
        "queue_depth",
        "fragments_dropped",
    } <= whole.standing.figures.keys()
