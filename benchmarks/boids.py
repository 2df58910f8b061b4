"""How fast do 100,000 boids fly: by substeps, fused, and beside mesa-frames and Mesa?

All systems start from the same birds and do the same steps, with the same rules, radius and box;
they take turns, each turn starting with another one, and the ratios are of the two in the same
turn. The peers run in a process of their own from a Python of their own. After the first step
their birds are compared with hotloop's.

    python3 -m venv PEERS && PEERS/bin/pip install mesa-frames mesa
    python benchmarks/boids.py --peer-python PEERS/bin/python --markdown docs/benchmarks/boids.md
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from hotloop.loop.figures import percentile_interval, smooth_median
from hotloop.models import boids
from hotloop.sim import Executor
from tables import table, write_page

TURNS, STEPS = 11, 4
PEER = Path(__file__).parent / "peers" / "boids.py"
HOW_TO = "pass --peer-python, see this file's first lines"
PUBLISHED = 467e6  # agent steps/s: FLAME GPU 2, Circles, 1 M agents, H100


@dataclass
class System:
    """Something that steps the birds; `positions` after the first step, (2, N)."""

    step: Callable[[int], float]
    positions: np.ndarray
    close: Callable[[], object]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--peer-python")
    options.add_argument("--agents", type=int, default=100_000)
    options.add_argument("--small", type=int, default=1_000, help="agents beside Mesa")
    options.add_argument("--turns", type=int, default=TURNS)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    parts = [
        f"Milliseconds a step and million agent steps per second: medians over {chosen.turns} "
        f"turns of {STEPS} steps each, with 95% intervals. The last column is how many times as "
        "long as hotloop's fused step on as many threads it takes, in the same turn. A bird of "
        "the random start sees 20 others on average, 57 being in the nine cells around it."
    ]
    with tempfile.TemporaryDirectory() as folder:
        for size, makers in (
            (chosen.agents, large(chosen.peer_python)),
            (chosen.small, small(chosen.peer_python)),
        ):
            parts += [f"## {size:,} birds", *measure(size, makers, chosen.turns, Path(folder))]
    parts += [
        "Equal in all: the start, the box, the radius, the three rules with their weights, the "
        "speed limits, and that all birds hear before any moves. hotloop's own rows agree to the "
        "last bit, on any number of threads. The peers add in floating point, Mesa in double "
        "precision, so that their birds differ in the last digits at first, and by chaos later. "
        "mesa-frames has no flocking and no continuous space: its model here is an agent set whose "
        "neighbours come from joins on cells, written for this comparison; Mesa's space looks "
        "through all birds for the neighbours of one.",
        f"Published, not measured here, and another model: FLAME GPU 2 makes "
        f"{PUBLISHED / 1e6:.0f} million agent steps/s on an H100 (Circles, 1 million agents, "
        "200 steps in 0.428 s).",
    ]
    write_page(chosen.markdown, "Boids", parts, "benchmarks/boids.py")


Maker = Callable[[int, Path], System]


def large(peer_python: str | None) -> dict[str, Maker | None]:
    makers: dict[str, Maker | None] = {
        "hotloop, substeps on tensors, 1 thread": partial(ours, fused=False, compiled=False),
        "hotloop, substeps, 1 thread": partial(ours, fused=False),
    }
    for threads, label in ((1, "1 thread"), (2, "2 threads")):
        makers[f"hotloop, fused, {label}"] = partial(ours, threads=threads)
        makers[f"mesa-frames, {label}"] = peer_maker(peer_python, "mesa-frames", threads)
    if torch.cuda.is_available():
        makers[f"hotloop, {torch.cuda.get_device_name()}"] = partial(ours, device="cuda")
    return makers


def small(peer_python: str | None) -> dict[str, Maker | None]:
    return {
        "hotloop, fused, 1 thread": partial(ours, threads=1),
        "mesa-frames, 1 thread": peer_maker(peer_python, "mesa-frames", 1),
        "Mesa, 1 thread": peer_maker(peer_python, "mesa", 1),
    }


def peer_maker(python: str | None, name: str, threads: int) -> Maker | None:
    return None if python is None else partial(theirs, python=python, name=name, threads=threads)


def ours(
    size: int,
    folder: Path,
    *,
    threads: int = 1,
    fused: bool = True,
    compiled: bool = True,
    device: str = "cpu",
) -> System:
    settings = boids.box_for(size)
    model = boids.model(size, settings, num_steps=1_000_000, compiled=compiled)
    runner = Executor(model, device=device, fused=fused, threads=threads).init()
    start = folder / f"{size}.npz"
    if not start.exists():
        columns = {path.rpartition("/")[2]: runner.state[path].cpu() for path in boids.PATHS}
        np.savez(start, settings=json.dumps(asdict(settings)), **columns)
    runner.step(1)

    def step(steps: int) -> float:
        torch.set_num_threads(threads)
        begin = perf_counter()
        runner.step(steps)
        if device == "cuda":
            torch.cuda.synchronize()
        return perf_counter() - begin

    positions = np.stack([runner.state[path].cpu().numpy() for path in boids.PATHS[:2]])
    return System(step, positions, runner.close)


def theirs(size: int, folder: Path, *, python: str, name: str, threads: int) -> System:
    limits = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    process = subprocess.Popen(
        [python, str(PEER), name, str(folder / f"{size}.npz")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(limits, str(threads))},
    )

    def ask(line: str) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return float(json.loads(process.stdout.readline())["seconds"])

    first = folder / "first.npy"
    ask(f"1 {first}")

    def close() -> None:
        process.communicate()

    return System(lambda steps: ask(str(steps)), np.load(first), close)


def measure(size: int, makers: dict[str, Maker | None], turns: int, folder: Path) -> list[str]:
    systems = {name: make(size, folder) for name, make in makers.items() if make is not None}
    names = list(systems)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    try:
        for turn in range(turns):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                seconds[name].append(systems[name].step(STEPS) / STEPS)
    finally:
        for system in systems.values():
            system.close()
    header = ["system", "ms a step", "million agent steps/s", "times the fused step"]
    rows = [row(name, size, seconds) for name in makers]
    side = boids.box_for(size).width
    furthest = []
    for name, system in systems.items():
        away = np.abs(system.positions - systems[names[0]].positions)
        # On a GPU the cosines of the start may differ in a bit.
        if name.startswith("hotloop") and "thread" in name:
            assert not away.any(), f"{name} differs from {names[0]}"
        furthest.append(float(np.minimum(away, side - away).max()))
    return [
        table(header, rows),
        f"After the first step no bird of any system is further than {max(furthest):.1e} from "
        f"hotloop's, in a box {side:.0f} across.",
    ]


def row(name: str, size: int, seconds: dict[str, list[float]]) -> list[str]:
    if name not in seconds:
        return [name, HOW_TO, "", ""]
    times = np.array(seconds[name])
    threads = name.rpartition(", ")[2]
    fused = np.array(seconds.get(f"hotloop, fused, {threads}", seconds["hotloop, fused, 1 thread"]))
    ratio = "" if "fused" in name else interval(times / fused, ".1f")
    return [name, interval(times * 1e3, ".2f"), f"{size / np.median(times) / 1e6:.2f}", ratio]


def interval(values: np.ndarray, form: str) -> str:
    drawn = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
    found = percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"


if __name__ == "__main__":
    main()
