"""A watched training does what it does alone; what is seen of it is what was planted."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import gymnasium
import pytest
import torch
from torch import nn

import hotloop
from hotloop.errors import HotloopError, LoopError, RunError, SettingError
from hotloop.loop.control import ENVIRONMENT_VARIABLE, process_control
from hotloop.loop.figures import Interval
from hotloop.loop.run import load
from hotloop.report.kinds import KINDS
from hotloop.results.saved import open_run
from support.wait import wait_until

PLANTED = 0.002


class Waits(torch.utils.data.Dataset):
    """Items that take a known time each, and `times` what went by since the last one at least."""

    def __init__(self, wait_s: float, times: float) -> None:
        self.wait_s, self.times = wait_s, times
        self.ended_s = time.perf_counter()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(max(self.wait_s, self.times * (time.perf_counter() - self.ended_s)))
        self.ended_s = time.perf_counter()
        return torch.full((8,), float(index % 7))


def train(
    iterations: int, wait_s: float = PLANTED, times: float = 0.0, fails_at: int | None = None
) -> list[float]:
    """A plain loop; returns its losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses: list[float] = []
    while True:
        for x in torch.utils.data.DataLoader(Waits(wait_s, times), batch_size=1, shuffle=True):
            optimiser.zero_grad()
            loss = (model(x) - x.sum()).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            if len(losses) == fails_at:
                raise KeyboardInterrupt
            if len(losses) == iterations:
                return losses


def patched() -> list[object]:
    """What the places of the libraries are now."""
    return [
        nn.Module.__call__,
        torch.optim.Adam.step,
        torch.Tensor.backward,
        gymnasium.Env.__dict__.get("__init_subclass__"),
        torch.optim.Optimizer.__init__,
        gymnasium.Wrapper.step,
    ]


def assert_nothing_is_left(before: list[object]) -> None:
    assert patched() == before
    control = process_control()
    assert control.watcher is None
    assert not any(control.modes)
    assert not [t for t in threading.enumerate() if t.name == "hotloop-watch"]


@pytest.mark.long
def test_a_watched_training_learns_what_it_learns_alone_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    alone = train(900)  # torch itself changes an optimiser's step when the first one is made
    before = patched()
    drawn = torch.rand(3).tolist()
    with hotloop.watch(run=tmp_path / "a.run", every_s=0.3, terminal=False) as watched:
        assert train(900) == alone
        assert torch.rand(3).tolist() == drawn
    assert_nothing_is_left(before)
    assert watched.summary.sampled > 0


@pytest.mark.long
def test_delays_change_no_result_either(tmp_path: Path) -> None:
    alone = train(600, wait_s=0.001)
    with hotloop.watch(causal=True, delay_share=0.3, terminal=False) as watched:
        assert train(600, wait_s=0.001) == alone
        # On a busy machine, a pair may take longer than this training.
        wait_until(lambda: train(100) and watched.record.pairs, "delays were compared")


@pytest.mark.long
def test_the_stages_have_their_planted_shares_and_the_iterations_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, wait_s = tmp_path / "a.run", 0.008
    with hotloop.watch(run=path, every_s=0.3, name="planted") as watched:
        train(600, wait_s, times=3.0)  # far more than the rest, on a busy machine too
    shares = {stage.name: stage.share.value for stage in watched.summary.stages}
    assert shares["data"] > 0.5
    assert shares["data"] == max(shares.values())
    found = watched.summary
    assert isinstance(found.iterations_per_s, Interval)
    assert found.iterations_per_s.value < 1 / wait_s
    assert found.unit == "samples"
    # The search, and the last calls before the end, are not counted.
    assert 100 < found.iterations < 600
    said = capsys.readouterr()
    assert said.out == ""
    assert "hotloop: an iteration is data, forward, backward, optimiser step: " in said.err
    assert "samples/s" in said.err
    run, kind = load(path), KINDS["watch"]
    assert run.complete
    assert run.target == "planted"
    assert kind.summarize(open_run(path)).sampled == found.sampled


@pytest.mark.long
def test_an_error_and_an_interrupt_leave_nothing_and_keep_what_was_seen(tmp_path: Path) -> None:
    before = patched()
    path = tmp_path / "a.run"
    with pytest.raises(KeyboardInterrupt), hotloop.watch(run=path, terminal=False):
        train(2000, fails_at=700)
    assert_nothing_is_left(before)
    assert not load(path).complete
    assert len(load(path).arrays["duration_ns"])
    with pytest.raises(ZeroDivisionError), hotloop.watch(terminal=False):
        train(1 // 0)
    assert_nothing_is_left(before)


def test_a_watch_within_a_watch_or_a_measurement_is_refused() -> None:
    before = patched()
    with hotloop.watch(terminal=False):
        with pytest.raises(LoopError, match="measuring already"), hotloop.watch():
            pass
        loop = hotloop.Loop(body=lambda: 1, name="inner")
        with pytest.raises(LoopError, match="measuring already"):
            hotloop.run_benchmark(loop, seconds=0.1)
    assert_nothing_is_left(before)

    def body() -> int:
        with hotloop.watch():
            return 1

    with pytest.raises(LoopError, match="measuring already"):
        hotloop.run_benchmark(hotloop.Loop(body=body, name="outer"), seconds=0.1)
    assert_nothing_is_left(before)


def test_a_watch_is_entered_once() -> None:
    watched = hotloop.watch(terminal=False)
    with watched:
        pass
    with pytest.raises(LoopError, match="entered once"), watched:
        pass


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"every_s": 0}, "every_s: expected a number above 0"),
        ({"causal": True, "delay_share": 0.9}, "delay_share: expected a share"),
        ({"delay_share": 0.05}, "add that"),
        ({"tensorbord": "x"}, "did you mean 'tensorboard'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(SettingError, match=why):
        hotloop.watch(**settings)


def test_what_cannot_be_written_is_said_before_the_training(tmp_path: Path) -> None:
    before = patched()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError), hotloop.watch(run=tmp_path / "file" / "a.run"):
        pass
    with pytest.raises(SettingError), hotloop.watch(tensorboard=tmp_path / "file"):
        pass
    assert_nothing_is_left(before)


def test_a_run_that_cannot_be_saved_at_the_end_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.run"
    with hotloop.watch(run=path, terminal=False):
        path.unlink()
        path.mkdir()
    assert "could not be saved" in caplog.text


FORKS = """
import os, threading
import hotloop

watched = hotloop.watch(terminal=False).__enter__()
held = threading.Event()

def hold():
    with watched._sampler._lock:
        held.set()
        ended.wait()

ended = threading.Event()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    watched.__exit__()
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
ended.set()
watched.__exit__()
print(code)
"""


def test_a_forked_child_ends_whatever_the_watch_is_about_to_do() -> None:
    """The alarm may look after what is due at the moment of the fork."""
    environment = {k: v for k, v in os.environ.items() if k != ENVIRONMENT_VARIABLE}
    command = [sys.executable, "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "0\n", done.stderr


def test_what_repeats_nothing_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    with hotloop.watch() as watched:
        train(1)
    assert "nothing was measured" in capsys.readouterr().err
    assert watched.summary.stages == []


def test_a_fault_of_the_watch_ends_no_training(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train(50, wait_s=0)
    with hotloop.watch(terminal=False) as watched:

        def broken(*_: object) -> None:
            raise HotloopError("a planted fault")

        monkeypatch.setattr(watched._sampler, "_state", broken)
        assert train(50, wait_s=0) == alone
    assert "a planted fault" in caplog.text


@pytest.mark.long
def test_scalars_are_written_and_are_no_calls_of_the_training(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with hotloop.watch(tensorboard=tmp_path, every_s=0.2, terminal=False) as watched:
        train(900)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"hotloop/iterations_per_s", "hotloop/samples_per_s", "hotloop/share/data"} <= tags
    assert "log" not in {stage.name for stage in watched.summary.stages}


@pytest.mark.long
def test_a_watched_script_prints_and_writes_what_it_does_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    body = """
        import contextlib, sys
        import gymnasium as gym, torch
        if {watched}:
            import hotloop
            context = hotloop.watch(every_s=0.2)
        else:
            context = contextlib.nullcontext()
        with context:
            env = gym.make("CartPole-v1")
            torch.manual_seed(0)
            policy = torch.nn.Linear(4, 2)
            optimiser = torch.optim.SGD(policy.parameters(), 1e-3)
            seen, _ = env.reset(seed=1)
            for _ in range(1500):
                with torch.no_grad():
                    action = int(torch.distributions.Categorical(
                        logits=policy(torch.as_tensor(seen))).sample())
                at = torch.as_tensor(seen)
                seen, _, done, cut, _ = env.step(action)
                loss = -torch.log_softmax(policy(at), -1)[action]
                optimiser.zero_grad(); loss.backward(); optimiser.step()
                if done or cut:
                    seen, _ = env.reset()
            print("learned", policy.weight.double().sum().item(), torch.rand(1).item())
            torch.save(policy.state_dict(), sys.argv[1])
    """
    said = []
    environment = {k: v for k, v in os.environ.items() if k != ENVIRONMENT_VARIABLE}
    for watched in (False, True):
        script.write_text(textwrap.dedent(body).format(watched=watched))
        done = subprocess.run(
            [sys.executable, script, tmp_path / f"{watched}.pt"],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        said.append(done.stdout)
    assert said[0] == said[1]
    first, second = (torch.load(tmp_path / f"{w}.pt") for w in (False, True))
    assert all(torch.equal(first[name], second[name]) for name in first)
