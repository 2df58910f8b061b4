"""`hotloop train` and `hotloop evaluate`: exit codes, interrupts, resuming, and what is refused."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.learn.checkpoint import load_checkpoint
from hotloop.loop.run import load
from support.disks import on_disk
from support.wait import wait_until

CARTPOLE = "ppo:CartPole-v1"
STEPPING = "ppo:stepping_env:Stepping-v0"
SLOW = "ppo:training_envs:Slow-v0"
PROCESS = ("--backend", "process", "--num-workers", "2")
# Every iteration is evaluated, so that an interrupted run has something to show.
SHORT = ("--num-envs", "4", "--fragment-steps", "8", "--evaluate-every", "1")
ENDLESS = ("--total-steps", 10**9)


def steps_in(path: Path) -> int:
    return load_checkpoint(path).env_steps


@pytest.mark.long
def test_a_solved_env_exits_with_0(hotloop: Callable, project: Path) -> None:
    done = hotloop("train", CARTPOLE, *SHORT, "--target-return", "1", cwd=project)
    assert done.code == 0, done.err
    assert "solved after 64 env steps in " in done.out
    assert "checkpoint: hotloop evaluate .hotloop/" in done.err
    (run,) = (project / ".hotloop").glob("*.run")
    assert load(run).facts["ended"] == "solved"


@pytest.mark.long
def test_an_env_that_was_not_solved_exits_with_1(hotloop: Callable, project: Path) -> None:
    done = hotloop(
        "train", CARTPOLE, *SHORT, "--total-steps", 256, "--price-per-hour", 3600, cwd=project
    )
    assert done.code == 1
    assert done.messages == []
    assert "not solved in 256 env steps: best mean greedy return" in done.out
    for word in ("env steps/s", "updates/s", "batches/s", "in training", "policy", "cost"):
        assert word in done.out
    assert "checkpoint: hotloop train --resume .hotloop/" in done.err


@pytest.mark.long
def test_an_interrupt_saves_a_checkpoint_the_curve_and_ends_the_workers(
    start: Callable, hotloop: Callable, project: Path
) -> None:
    options = (*PROCESS, *SHORT, *ENDLESS, "--checkpoint", "a.checkpoint")
    command = start("train", STEPPING, *options, cwd=project)
    command.wait_for("stepping")
    assert len(command.children) == 2
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert (done.code, done.messages) == (130, ["hotloop: interrupted"])
    assert "checkpoint: hotloop train --resume a.checkpoint" in done.err
    assert command.alive() == []
    (path,) = (project / ".hotloop").glob("*.run")
    assert not load(path).complete
    steps = steps_in(project / "a.checkpoint")
    assert steps == load(path).facts["env_steps_done"] > 0
    again = ("--total-steps", steps + 32, "--backend", "serial", "--save", "b.run")
    done = hotloop("train", "--resume", "a.checkpoint", *again, cwd=project)
    assert done.code == 1, done.err
    run = load(project / "b.run")
    assert run.target == STEPPING
    assert run.facts["env_steps_done"] == steps_in(project / "a.checkpoint") == steps + 32
    assert run.arrays["env_steps"].tolist() == list(range(32, steps + 33, 32))


@pytest.mark.slow
def test_a_terminated_training_saves_a_checkpoint_too(start: Callable, project: Path) -> None:
    command = start("train", SLOW, *ENDLESS, "--checkpoint", "a.checkpoint", cwd=project)
    command.wait_for("stepping")
    command.process.terminate()
    done = command.end()
    assert (done.code, done.messages) == (130, ["hotloop: interrupted"])
    assert steps_in(project / "a.checkpoint") > 0


@pytest.mark.long
def test_a_killed_training_goes_on_from_its_last_checkpoint(
    start: Callable, hotloop: Callable, project: Path
) -> None:
    path, every = project / "a.checkpoint", ("--checkpoint-every", 64)
    command = start("train", SLOW, *SHORT, *ENDLESS, *every, "--checkpoint", path.name, cwd=project)
    wait_until(lambda: path.exists() and steps_in(path) >= 192, "checkpoints were written")
    command.process.kill()
    assert command.end().code == -signal.SIGKILL
    steps = steps_in(path)
    assert steps % 64 == 0
    options = ("--total-steps", steps + 32, "--save", "b.run")
    done = hotloop("train", "--resume", path.name, *options, cwd=project)
    assert done.code == 1, done.err
    assert steps_in(path) == steps + 32
    run = load(project / "b.run")
    assert (np.diff(run.arrays["seconds"]) > 0).all()
    assert run.facts["resumed_from"] == path.name


@pytest.mark.long
def test_a_time_limit_ends_with_what_was_learned(hotloop: Callable, project: Path) -> None:
    options = (*ENDLESS, "--time-limit", "0.05", "--checkpoint", "a.checkpoint")
    done = hotloop("train", SLOW, *SHORT, *options, cwd=project)
    assert done.code == 1
    assert "its time limit" in done.out
    assert steps_in(project / "a.checkpoint") > 0


@pytest.mark.long
def test_a_loss_that_is_no_number_is_said_with_its_batch(hotloop: Callable, project: Path) -> None:
    target = "ppo:training_envs:NanReward-v0"
    done = hotloop("train", target, *SHORT, "--checkpoint", "a.checkpoint", cwd=project)
    assert done.code == 1
    (message,) = done.messages
    assert "expected a finite loss and gradient, got loss nan" in message
    assert "its batch is saved as a.batch.npz" in message
    with np.load(project / "a.batch.npz", allow_pickle=False) as batch:
        assert np.isnan(batch["target"]).any()
    assert "an error ended the training" in done.out
    assert "Traceback" not in done.err


@pytest.mark.long
@pytest.mark.parametrize("buffered", [(), ("--double-buffer",)])
def test_trains_in_processes(hotloop: Callable, project: Path, buffered: tuple[str, ...]) -> None:
    options = (*buffered, *PROCESS, *SHORT, "--total-steps", 64, "--save", "a.run")
    done = hotloop("train", *options, CARTPOLE, cwd=project)
    assert done.code == 1, done.err  # not solved
    run = load(project / "a.run")
    assert run.arrays["env_steps"].tolist() == [32, 64]
    assert run.settings["backend"] == "process"
    assert run.settings["double_buffer"] is bool(buffered)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backend", "proces"), "did you mean 'process'?"),
        (("--double-buffer",), "double_buffer: expected none with backend 'serial'"),
        (("--num-workers", "2"), "num_workers: expected none with backend 'serial'"),
        ((*PROCESS, "--num-envs", "7", "--double-buffer"), "num_envs: expected an even number"),
        (("--target-return", "inf"), "target_return: expected a return that can be reached"),
        (("--target-return", "many"), "many"),
        (("--time-limit", "0"), "time_limit: expected a number above 0"),
        (("--checkpoint-every", "-1"), "checkpoint_every: expected a whole number of 0 or more"),
        (("--price-per-hour", "-1"), "--price-per-hour: expected a number above 0"),
        (("--checkpoint", "."), "--checkpoint: . is a folder"),
        (("--checkpoint", "plain.py"), "plain.py: expected the name of a new file"),
        (("--checkpoint", "plain.py/a"), "--checkpoint"),
        (("--tensorboard", "plain.py"), "--tensorboard: plain.py: expected a folder"),
    ],
)
def test_settings_that_do_not_fit(
    hotloop: Callable, project: Path, options: tuple[str, ...], message: str
) -> None:
    done = hotloop("train", CARTPOLE, *options, cwd=project)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert not (project / ".hotloop").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ppoo:CartPole-v1", "got the algorithm 'ppoo'; did you mean 'ppo'?"),
        ("dqn:CartPole-v1", "got the algorithm 'dqn'; there is 'ppo', 'appo', 'impala', 'apex'"),
        ("CartPole-v1", "expected ALGORITHM:ENV, such as ppo:CartPole-v1"),
        ("ppo", "expected ALGORITHM:ENV"),
        ("ppo:CartPole-v7", "'CartPole-v7'"),
        ("ppo:training_envs:Words-v0", "observations: expected"),
    ],
)
def test_targets_that_cannot_be_learned(
    hotloop: Callable, project: Path, target: str, message: str
) -> None:
    done = hotloop("train", target, cwd=project)
    assert done.code == 1
    (said,) = done.messages
    assert message in said
    assert "Traceback" not in done.err
    assert not (project / ".hotloop").exists()


@pytest.fixture(scope="module")
def trained(hotloop: Callable, make_project: Callable, tmp_path_factory: Any) -> Path:
    """A folder with a checkpoint, which the tests below leave as it is."""
    project = make_project(tmp_path_factory.mktemp("project"))
    options = ("--total-steps", 64, "--checkpoint", "a.checkpoint", "--no-anneal", "--seed", "3")
    done = hotloop("train", CARTPOLE, *SHORT, *options, cwd=project)
    assert done.code == 1, done.err
    return project


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--gamma", "0.5"), 2, "gamma: expected 0.98, as in the checkpoint, got 0.5"),
        (("--seed", "4"), 2, "seed: expected 3, as in the checkpoint, got 4"),
        (("--anneal",), 2, "anneal: expected False, as in the checkpoint, got True"),
        (("--checkpoint-every", "32"), 2, "checkpoint_every: expected 100000, "),
        (("ppo:Acrobot-v1",), 2, "target: expected ppo:CartPole-v1, "),
    ],
)
def test_a_resume_refuses_another_course(
    hotloop: Callable, trained: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    before = (trained / "a.checkpoint").read_bytes()
    done = hotloop("train", "--resume", "a.checkpoint", *options, cwd=trained)
    assert done.code == code, done.err
    assert message in done.err
    assert (trained / "a.checkpoint").read_bytes() == before


@pytest.mark.long
def test_a_resume_may_change_where_and_how_long(hotloop: Callable, trained: Path) -> None:
    options = (
        *("--resume=a.checkpoint", CARTPOLE, "--total-steps", 128, "--evaluate-every", 64),
        *("--target-return", 400, *PROCESS, "--torch-threads", 1, "--device", "cpu"),
        *("--checkpoint", "b.checkpoint", "--save", "b.run"),
    )
    done = hotloop("train", *options, cwd=trained)
    assert done.code == 1, done.err
    assert load(trained / "b.run").arrays["env_steps"].tolist() == [32, 64, 128]
    saved = load_checkpoint(trained / "b.checkpoint").settings
    assert (saved.seed, saved.anneal, saved.backend) == (3, False, "process")
    assert steps_in(trained / "a.checkpoint") == 64


@pytest.mark.long
@pytest.mark.parametrize("verb", [("train", "--resume"), ("evaluate",)], ids=["train", "evaluate"])
def test_files_that_are_no_checkpoint(
    hotloop: Callable, trained: Path, verb: tuple[str, ...]
) -> None:
    whole = (trained / "a.checkpoint").read_bytes()
    (trained / "cut.checkpoint").write_bytes(whole[: len(whole) // 2])
    for name, message in (
        ("none.checkpoint", "no such checkpoint"),
        ("cut.checkpoint", "was cut short or damaged"),
        ("plain.py", "is no hotloop checkpoint"),
        (".", "is a folder"),
    ):
        done = hotloop(*verb, name, cwd=trained)
        assert done.code == 1, name
        (said,) = done.messages
        assert message in said
        assert done.out == ""
    (trained / "cut.checkpoint").unlink()


@pytest.mark.long
def test_a_policy_is_evaluated(hotloop: Callable, trained: Path) -> None:
    done = hotloop("evaluate", "a.checkpoint", cwd=trained)
    assert done.code == 0, done.err
    curve = load_checkpoint(trained / "a.checkpoint").curve["mean_return"]
    assert f"after 64 env steps: mean greedy return {curve[-1]:.1f} over 20 episodes" in done.out
    assert "median" in done.out
    done = hotloop("evaluate", "a.checkpoint", "--episodes", 3, "--seed", 1, "--json", cwd=trained)
    found = json.loads(done.out)
    assert found["episodes"] == len(found["returns"]) == len(found["lengths"]) == 3
    assert found["returns"] == found["lengths"]  # a reward of 1 each step
    assert found["mean_return"] == pytest.approx(np.mean(found["returns"]))
    done = hotloop("evaluate", "a.checkpoint", "--episodes", 0, cwd=trained)
    assert (done.code, done.out) == (2, "")


@pytest.mark.long
def test_json_alone_is_printed(hotloop: Callable, project: Path) -> None:
    done = hotloop("train", CARTPOLE, *SHORT, "--total-steps", 32, "--json", cwd=project)
    found = json.loads(done.out)
    assert (found["env_steps"], found["ended"], found["updates"]) == ([32], "steps", 1)
    assert set(found["figures"]) >= {"policy_loss", "value_loss", "entropy", "learning_rate"}


@pytest.mark.slow
def test_a_full_disk_ends_the_training_and_leaves_the_checkpoint_before(
    hotloop: Callable, project: Path
) -> None:
    # One checkpoint fits beside the one that replaces it, until something else takes the room.
    options = ("--checkpoint", "disk/a.checkpoint", "--checkpoint-every", 32, "--hidden-size", 8)
    fills = "(while [ ! -e disk/a.checkpoint ]; do sleep 0.01; done; cat /dev/zero > disk/zeros) &"
    before = on_disk(
        size_kb=32,
        between=f"{fills} true",
        after="cp disk/a.checkpoint kept; ls -A disk > left",
    )
    done = hotloop("train", SLOW, *SHORT, *ENDLESS, *options, cwd=project, before=before)
    assert done.code == 1
    (said,) = done.messages
    assert "the checkpoint could not be written as disk/a.checkpoint: No space left" in said
    assert "not solved in" in done.out
    assert steps_in(project / "kept") % 32 == 0
    assert (project / "left").read_text().split() == ["a.checkpoint", "zeros"]


@pytest.mark.long
def test_the_figures_are_shown_while_a_training_lasts_on_a_terminal(
    on_terminal: Callable[..., Any], project: Path
) -> None:
    terminal = on_terminal("train", SLOW, *ENDLESS, "--evaluate-every", 10**9)
    shown = (b"SPS", b"updates/s", b"BPS", b"return in training", b"greedy", b"CPU")
    terminal.read_until(lambda: all(word in terminal.screen for word in shown))
    terminal.type(b"\x03")
    terminal.read_to_the_end()
    assert terminal.process.returncode == 130
    assert b"hotloop train --resume" in terminal.screen
    assert terminal.screen.rfind(b"\x1b[?25h") > terminal.screen.rfind(b"\x1b[?25l")
    assert terminal.settings_now() == terminal.settings


@pytest.mark.long
def test_events_are_written(hotloop: Callable, project: Path) -> None:
    pytest.importorskip("tensorboard")
    options = ("--total-steps", 64, "--tensorboard", "events", "--checkpoint", "a.checkpoint")
    done = hotloop("train", CARTPOLE, *SHORT, *options, cwd=project)
    assert (done.code, done.messages) == (1, [])
    assert len(list((project / "events").iterdir())) == 1
