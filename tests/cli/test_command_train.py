"""`hotloop train` on a backend: no worker is left, and a wrong setting is refused before work."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.loop.run import load

STEPPING = "ppo:stepping_env:Stepping-v0"
PROCESS = ("--backend", "process", "--num-workers", "2")
# Every iteration is evaluated, so that an interrupted run has something to show.
SHORT = ("--num-envs", "4", "--fragment-steps", "8", "--evaluate-every", "1")


def test_an_interrupt_ends_the_workers_and_keeps_the_curve(start: Callable, project: Path) -> None:
    options = (*PROCESS, *SHORT, "--total-steps", 10**9)
    command = start("train", STEPPING, *options, cwd=project)
    command.wait_for("stepping")
    assert len(command.children) == 2
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert (done.code, done.messages) == (130, ["hotloop: interrupted"])
    assert command.alive() == []
    (path,) = (project / ".hotloop").glob("*.run")
    assert not load(path).complete


@pytest.mark.parametrize("buffered", [(), ("--double-buffer",)])
def test_trains_in_processes(hotloop: Callable, project: Path, buffered: tuple[str, ...]) -> None:
    options = (*PROCESS, *SHORT, *buffered, "--total-steps", 64, "--save", "a.run")
    done = hotloop("train", "ppo:CartPole-v1", *options, cwd=project)
    assert done.code == 0, done.err
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
    ],
)
def test_settings_that_do_not_fit(
    hotloop: Callable, project: Path, options: tuple[str, ...], message: str
) -> None:
    done = hotloop("train", "ppo:CartPole-v1", *options, cwd=project)
    assert done.code == 2
    assert message in done.err
    assert not (project / ".hotloop").exists()
