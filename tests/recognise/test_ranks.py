"""Scripts that torchrun starts as two ranks: all obey the same arm, and the slow one is named.

Each launch takes seconds, as every rank imports torch: little is measured in each, and much is read
from it.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from hotloop.errors import LoopError, SettingError, TargetError
from hotloop.loop.figures import Interval, Unknown
from hotloop.results import ranks as launching
from hotloop.results.benchmark import run_benchmark
from hotloop.results.simplify import run_simplify
from support.wait import wait_until

DATA_PARALLEL = """
    import os, sys, time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset

    rank = int(os.environ["RANK"])

    class Waits(Dataset):
        def __len__(self):
            return 402
        def __getitem__(self, index):
            time.sleep({wait_s} if rank == 1 else 0)
            return torch.full((8,), float(index % 7)), index % 3

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), {layer}, nn.ReLU(), nn.Linear(16, 3)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimiser = torch.optim.SGD(model.parameters(), 1e-2)
    compute_loss = nn.CrossEntropyLoss()
    step = 0
    {before}
    for epoch in range(int(sys.argv[1])):
        for x, y in DataLoader(Waits(), batch_size=4):
            step += 1
            {at_each_step}
            optimiser.zero_grad()
            loss = compute_loss(model(x), y)
            loss.backward()
            optimiser.step()
"""
AVERAGED_BY_HAND = """
    import os, time
    import torch
    import torch.distributed as dist
    from torch import nn

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    model = nn.Linear(4, 2)
    optimiser = torch.optim.SGD(model.parameters(), 1e-2)
    while True:
        if rank == 1:
            time.sleep(0.01)
        optimiser.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimiser.step()
"""
TWO_RANKS = ("--nproc-per-node", "2")


def written(folder: Path, text: str, **values: object) -> str:
    text = textwrap.dedent(text)
    defaults = {
        "wait_s": 0.005,
        "layer": "nn.Identity()",
        "before": "pass",
        "at_each_step": "pass",
    }
    for name, value in (defaults | values).items():
        text = text.replace("{" + name + "}", str(value))
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def left_over(script: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if script in (process.info["cmdline"] or []) and process.pid != os.getpid():
            found.append(process.pid)
    return found


def none_left_over(script: str, within_s: float = 20.0) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not left_over(script):
            return True
        time.sleep(0.1)
    return False


def test_a_benchmark_has_a_row_for_each_rank_and_names_the_slow_one(tmp_path: Path) -> None:
    script = written(tmp_path, DATA_PARALLEL)
    before = signal.getsignal(signal.SIGTERM)
    found = run_benchmark("torchrun", arguments=[*TWO_RANKS, script, "1000"], seconds=3)
    summary = found.summary
    ranks = summary.ranks
    assert ranks is not None
    assert [row.rank for row in ranks.rows] == [0, 1]
    assert ranks.slowest == 1
    assert ranks.in_stage is not None
    assert ranks.in_stage[0] == "data"
    assert ranks.in_stage[1] > 15e6
    waits = [row.waits_ns for row in ranks.rows]
    assert isinstance(waits[0], Interval)
    assert waits[0].value > 15e6
    assert isinstance(ranks.iteration_ns, Interval)
    assert isinstance(ranks.if_like_mean_ns, Interval)
    assert isinstance(ranks.if_like_fastest_ns, Interval)
    assert ranks.if_like_fastest_ns.value < ranks.if_like_mean_ns.value < ranks.iteration_ns.value
    assert isinstance(ranks.communication, float)
    assert 0 <= ranks.communication < 1  # much of it, where other programs want the cores
    # The other rank waits in the exchange: its share says nothing about the network.
    assert isinstance(ranks.stage_communication, float)
    assert 0 < ranks.stage_communication < 1
    assert ranks.rows[0].ns_per_iteration["communication"] > 15e6
    # Both are of the same iterations; what rank 0 does for the measurement is in neither.
    lasted_ns = [rank["ns_per_iteration"] for rank in found.run.facts["ranks"]]
    assert lasted_ns[1] == pytest.approx(lasted_ns[0], rel=0.3)
    assert [row.units_per_iteration["samples"] for row in ranks.rows] == pytest.approx([4, 4], 0.1)
    assert summary.unit == "samples of rank 0"
    assert any("rank 1 is the slowest" in warning for warning in summary.warnings)
    shown = repr(found)
    assert "if all were like the mean" in shown
    assert "exchange of gradients" in shown
    assert none_left_over(script)
    assert signal.getsignal(signal.SIGTERM) is before
    saved = found.save(tmp_path / "run.hotloop")
    assert "Time by rank" in found._repr_html_()
    assert saved.exists()


@pytest.mark.slow
def test_all_ranks_replace_the_same_calls_so_that_the_slow_data_is_what_gains(
    tmp_path: Path,
) -> None:
    script = written(tmp_path, DATA_PARALLEL)
    found = run_simplify(
        "python -m torch.distributed.run", arguments=[*TWO_RANKS, script, "1000"], budget=8
    )
    rows = {row.name: row for row in found.verdict.rows}
    # On rank 0 the data takes next to nothing: it is the other rank's that all wait for.
    assert rows["data"].share < 0.3
    assert isinstance(rows["data"].gain, Interval)
    assert rows["data"].gain.value > 0.4
    both = rows["forward + backward"]
    assert isinstance(both.gain, Interval)
    assert both.gain.value < rows["data"].gain.value
    assert both.not_replaced is None
    assert found.verdict.ranks is not None
    assert found.verdict.ranks.slowest == 1
    assert none_left_over(script)


@pytest.mark.slow
def test_what_exchanges_buffers_in_its_forward_pass_is_delayed_only(tmp_path: Path) -> None:
    script = written(tmp_path, DATA_PARALLEL, layer="nn.BatchNorm1d(16)", wait_s=0.001)
    found = run_simplify("torchrun", arguments=[*TWO_RANKS, script, "1000"], budget=6)
    rows = {row.name: row for row in found.verdict.rows}
    assert "exchanges data with other ranks" in str(rows["forward + backward"].not_replaced)
    assert rows["data"].not_replaced is None


@pytest.mark.slow
def test_collectives_that_python_calls_are_a_stage_of_their_own(tmp_path: Path) -> None:
    script = written(tmp_path, AVERAGED_BY_HAND)
    found = run_benchmark("torchrun", arguments=[*TWO_RANKS, script], seconds=2)
    ranks = found.summary.ranks
    assert ranks is not None
    assert ranks.slowest == 1
    assert ranks.in_stage is None  # it sleeps in none of its stages
    assert isinstance(ranks.stage_communication, float)
    assert isinstance(ranks.communication, Unknown)
    assert "communication" in {stage.name for stage in found.summary.stages}


@pytest.mark.slow
def test_an_error_of_a_rank_is_told_with_its_number(tmp_path: Path) -> None:
    fails = "assert rank == 0 or step < 60, 'planted'"
    script = written(tmp_path, DATA_PARALLEL, at_each_step=fails)
    with pytest.raises(LoopError, match="rank 1 raised AssertionError: planted"):
        run_benchmark("torchrun", arguments=[*TWO_RANKS, script, "1000"], seconds=60)
    assert none_left_over(script)


@pytest.mark.slow
def test_a_job_that_hangs_is_ended_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "time.sleep(10_000 if rank == 1 and step == 80 else 0)"
    script = written(tmp_path, DATA_PARALLEL, at_each_step=hangs)
    monkeypatch.setattr(launching, "PATIENCE_S", 4.0)
    with pytest.raises(LoopError, match=r"no rank began an iteration for \d+ s"):
        run_benchmark("torchrun", arguments=[*TWO_RANKS, script, "1000"], seconds=60)
    assert none_left_over(script)


@pytest.mark.slow
def test_ranks_that_count_their_iterations_otherwise_are_told_apart_before_an_arm(
    tmp_path: Path,
) -> None:
    alone = (
        "[(x.backward(), optimiser.step()) for x in "
        "(model.module(torch.ones(4, 8)).sum() for k in range(3 * (rank == 0)))]"
    )
    script = written(tmp_path, DATA_PARALLEL, before=alone)
    with pytest.raises(LoopError, match="expected ranks that do the same iterations"):
        run_simplify("torchrun", arguments=[*TWO_RANKS, script, "1000"], budget=6)
    assert none_left_over(script)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "once_it_iterates"),
    [(signal.SIGINT, True), (signal.SIGKILL, True), (signal.SIGKILL, False)],
)
def test_no_rank_outlives_the_launcher(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    once_it_iterates: bool,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    tells = "print('iterates', flush=True) if step == 30 else None"
    script = written(tmp_path, DATA_PARALLEL, at_each_step=tells)
    command = [sys.executable, "-m", "hotloop.cli.main", "benchmark", "torchrun"]
    said = tmp_path / "said"
    with said.open("w") as output:
        launcher = subprocess.Popen(
            [*command, "--seconds", "500", "--", *TWO_RANKS, script, "100000"],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if "iterates" in said.read_text():
                break
            if not once_it_iterates and len(left_over(script)) == 3:
                break
            time.sleep(0.2)
        launcher.send_signal(number)
        launcher.wait(timeout=60)
    finally:
        launcher.kill()
        launcher.wait()
    assert none_left_over(script)

    def left() -> list[str]:
        # torch's compiler leaves its cache, also without hotloop.
        return [each.name for each in temporary.iterdir() if "torchinductor" not in each.name]

    wait_until(lambda: not left(), "the folder of the ranks is gone")


def test_what_cannot_be_measured_on_ranks_is_refused(tmp_path: Path) -> None:
    script = written(tmp_path, DATA_PARALLEL)
    with pytest.raises(SettingError, match="nnodes: expected 1"):
        run_benchmark("torchrun", arguments=["--nnodes", "2", *TWO_RANKS, script, "1"])
    with pytest.raises(TargetError, match="expected a script of Python's"):
        run_benchmark("torchrun", arguments=[*TWO_RANKS, "--no-python", "/bin/true"])
