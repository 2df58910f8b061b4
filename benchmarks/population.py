"""How long is a day of the covid model, how far is that from what memory allows, what does it keep?

Everything is measured in turns within one process: each optimisation switched on after the other
(the ladder), the sizes from 37 thousand to 10 million agents with a tenth of them infectious, and
beside them two probes of this machine's memory: copying the bytes of a dense day, and gathering one
number for each edge at random. Medians of paired turns.

    python benchmarks/population.py --markdown docs/benchmarks/population.md
    python benchmarks/population.py --sizes 37518,2700000
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import psutil
import torch
from numba import njit

from hotloop.populations import load
from hotloop.sim import Record, Runner
from population_runs import DAYS, day_bytes, in_turns, interval, made, tenth_infectious, text
from tables import table, write_page

SIZES = (37_518, 300_000, 2_700_000, 10_000_000)
CORES = len(os.sched_getaffinity(0))
THREADS = sorted({1, CORES})
TARGETS = """\
Targets: Astoria at most 0.35 ms a dense day with a tenth infectious in one thread, and 0.1 ms a
day on average over the first 21 with the active set; 2.7 million agents at most 18 ms a dense day
on two threads, and at least 60% of what a random gather of the same size allows; backward at most
3 times forward; at most 150 bytes an agent and 12 an edge; at most 1 MB for 100 days of sums."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="agents, by commas")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--memory-of", type=int, help="agents; used by the benchmark itself")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        memory_of(options.memory_of)
        return
    sizes = [int(size) for size in options.sizes.split(",")]
    parts = [
        f"Days of the covid model on {CORES} cores, medians of {options.turns} turns in "
        "milliseconds with 95% intervals; populations from `hotloop.populations`.\n\n" + TARGETS
    ]
    parts += ["## The ladder, Astoria, 21 days from 45 exposed", *ladder(options.turns)]
    parts += ["## A dense day with a tenth infectious", *dense_days(sizes, options.turns)]
    parts += ["## Memory", *memory(sizes)]
    parts += ["## Gradients", *gradients(options.turns)]
    write_page(options.markdown, "Populations", parts, "benchmarks/population.py")


# --- the ladder -------------------------------------------------------------------------------


def ladder(turns: int) -> list[str]:
    data = load("astoria")

    def at_once(runner: Runner) -> Callable[[], float]:
        def run() -> float:
            runner.reset()
            begin = perf_counter()
            runner.step(DAYS)
            return (perf_counter() - begin) * 1e3 / DAYS / (runner.settings.replicates or 1)

        return run

    def one_by_one(runner: Runner) -> Callable[[], float]:
        def run() -> float:
            runner.reset()
            begin = perf_counter()
            for _ in range(DAYS):
                runner.step(1)
            return (perf_counter() - begin) * 1e3 / DAYS

        return run

    def rebuilt() -> float:
        begin = perf_counter()
        for day in range(DAYS):
            runner = made(data, fused=False)
            runner.step(1)
            del runner, day
        return (perf_counter() - begin) * 1e3 / DAYS

    agents = Record(agents=True)
    sums = made(data, fused=False)
    runners = {
        "substeps on tensors, all agents kept each day": made(data, fused=False, record=agents),
        "and only sums kept": sums,
        "and fused in one kernel, dense, a call a day": made(data, active_set=False),
        "and 21 days in a call": made(data, active_set=False),
        "and the active set, by measurement": made(data),
        f"and 64 replicates in a batch, {CORES} threads, for one of them": made(
            data, replicates=64, threads=CORES
        ),
        "aside: mixed precision": made(data, precision="mixed"),
        "aside: push only": made(data, active_set=True),
    }
    ways = {
        name: one_by_one(runner) if "call a day" in name else at_once(runner)
        for name, runner in runners.items()
    }
    ways = {"data moved and network built every day": rebuilt, **ways}
    times = in_turns(ways, turns)
    plain = times["substeps on tensors, all agents kept each day"]
    rows = [
        [name, text(interval(ms)), f"{interval(plain / ms).value:.1f}x"]
        for name, ms in times.items()
    ]
    stats = runners["and the active set, by measurement"].get_performance_stats()
    shown = ("allocations", "reuses", "transfers", "active_share", "edges_per_s", "snapshot_bytes")
    counters = ", ".join(f"{key} {stats[key]:.4g}" for key in shown)
    total = {
        name: runner.state["environment/daily_infected"].sum() for name, runner in runners.items()
    }
    equal = len({float(v) for n, v in total.items() if "replicates" not in n and "mixed" not in n})
    for runner in runners.values():
        runner.close()
    return [
        table(["each with what stands above", "ms a day", "against the second"], rows),
        f"Counters of the active set after all turns: {counters}. "
        f"{'All rows but mixed infect the same agents' if equal == 1 else 'ROWS DIFFER'}.",
    ]


# --- dense days and their floors --------------------------------------------------------------


@njit(nogil=True)
def gather(ids: Any, values: Any, low: int, high: int) -> int:
    """What any pull must do at least: one number for each edge, from anywhere."""
    total = np.int32(0)
    for e in range(np.uint64(low), np.uint64(high)):
        total += values[np.uint32(ids[e])]
    return total


def in_threads(work: Callable[[int, int], Any], size: int, threads: int, pool: Any) -> float:
    cuts = np.linspace(0, size, threads + 1).astype(int).tolist()
    begin = perf_counter()
    if threads == 1:
        work(0, size)
    else:
        list(pool.map(work, cuts[:-1], cuts[1:]))
    return (perf_counter() - begin) * 1e3


def probes(network: Any, pool: ThreadPoolExecutor) -> dict[str, Callable[[], float]]:
    """What this machine's memory allows: gathers along the network's edges, and a copy."""
    ids, size = network.in_src, network.num_agents
    rng = np.random.default_rng(0)
    wide, small = (rng.integers(0, 9, size).astype(kind) for kind in (np.int32, np.uint8))
    moved = np.zeros(day_bytes(network), np.uint8)
    goal = np.empty_like(moved)
    works = {
        "wide": (lambda low, high: gather(ids, wide, low, high), len(ids)),
        "small": (lambda low, high: gather(ids, small, low, high), len(ids)),
        "copy": (lambda low, high: np.copyto(goal[low:high], moved[low:high]), len(moved)),
    }
    return {
        f"{name} {threads}": partial(in_threads, work, length, threads, pool)
        for name, (work, length) in works.items()
        for threads in THREADS
    }


def second_day(runner: Runner) -> float:
    """Milliseconds of the second day; the first mixes the stages."""
    runner.reset()
    runner.step(1)
    begin = perf_counter()
    runner.step(1)
    return (perf_counter() - begin) * 1e3


def dense_days(sizes: list[int], turns: int) -> list[str]:
    rows, per_agent = [], []
    pool = ThreadPoolExecutor(CORES)
    for size in sizes:
        data = tenth_infectious(load(size))
        runners = {
            f"{way} {threads}": made(data, 3, active_set=active, threads=threads)
            for threads in THREADS
            for way, active in (("dense", False), ("chosen", "auto"))
        }
        if size <= 300_000:
            runners["plain 1"] = made(data, 3, fused=False)
        network = runners["dense 1"].state["networks/contact"]
        ways = {name: partial(second_day, runner) for name, runner in runners.items()}
        times = in_turns(
            {**ways, **probes(network, pool)}, turns if size < 5_000_000 else max(5, turns // 3)
        )
        for threads in THREADS:
            dense = times[f"dense {threads}"]
            floors = (times[f"{name} {threads}"] for name in ("wide", "small", "copy"))
            chosen, wide = times[f"chosen {threads}"], times[f"wide {threads}"]
            plain = times.get(f"plain {threads}")
            rows.append(
                [
                    f"{size:,}",
                    str(threads),
                    "" if plain is None else text(interval(plain), 2),
                    text(interval(dense)),
                    text(interval(chosen)),
                    text(interval(wide), 2),
                    *(f"{interval(floor / dense).value:.0%}" for floor in floors),
                    f"{size / interval(chosen).value / 1e3:,.0f}",
                ]
            )
        per_agent.append(f"{size:,}: {day_bytes(network) / size:.0f}")
        for runner in runners.values():
            runner.close()
        del runners, network, ways, data
    header = [
        "agents", "threads", "substeps on tensors, ms", "fused dense, ms", "fused, chosen, ms",
        "gather of 4 bytes, ms", "its share", "share of gather of 1 byte", "share of copy",
        "million agent days/s",
    ]  # fmt: skip
    return [
        table(header, rows),
        "A share is the floor over the dense day, paired. Bytes an agent in a dense day: "
        + "; ".join(per_agent)
        + ".",
    ]


# --- memory -----------------------------------------------------------------------------------


def memory(sizes: list[int]) -> list[str]:
    rows = []
    for size in [s for s in sizes if s <= 3_000_000]:
        # In a process of its own: memory that was used before would be used again.
        command = [sys.executable, __file__, "--memory-of", str(size)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        edges = found["edges"]
        rows.append(
            [
                f"{size:,}", f"{edges:,}", f"{(found['kept'] - 8 * edges) / size:.0f}", "8",
                f"{found['resident'] / 2**20:.0f}", f"{(150 * size + 12 * edges) / 2**20:.0f}",
                f"{found['record']:,}", f"{found['snapshots']:,}",
            ]
        )  # fmt: skip
    header = [
        "agents", "edges", "bytes an agent", "bytes an edge", "resident at most, MiB",
        "150 an agent and 12 an edge, MiB", "100 days of sums, bytes", "copied by snapshots, bytes",
    ]  # fmt: skip
    return [
        table(header, rows),
        "Bytes are counted over state, network and what the program keeps. Resident is what the "
        "process grew by, at most, from the loaded population on: building the network needs some "
        "more for a moment, and compiled code about 50 MiB.",
    ]


def memory_of(size: int) -> None:
    """Print, as JSON, what 100 days of a population take."""
    small = made(load(1_000), 2)
    small.step(2)  # what is compiled is not counted
    data = load(size)
    before = psutil.Process().memory_info().rss
    runner = made(data, 100)
    runner.step(100)
    # Of this process alone; ru_maxrss would remember the one that it was forked from.
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    network = runner.state["networks/contact"]
    state = sum(slot.home.untyped_storage().nbytes() for slot in runner.state.slots.values())
    found = {
        "edges": network.num_edges,
        "kept": state + network.nbytes + runner.program.nbytes,
        "resident": peak - before,
        "record": record_bytes(runner),
        "snapshots": runner.get_performance_stats()["snapshot_bytes"],
    }
    print(json.dumps(found))


def record_bytes(runner: Runner) -> int:
    """Bytes that the series of the environment take."""
    series = (slot.home for slot in runner.state.slots.values() if slot.is_series)
    return sum(home.untyped_storage().nbytes() for home in series)


# --- gradients --------------------------------------------------------------------------------


def forward(runner: Runner) -> float:
    runner.reset()
    begin = perf_counter()
    runner.step(DAYS)
    return (perf_counter() - begin) * 1e3 / DAYS


def backward(runner: Runner) -> float:
    runner.reset()
    runner.step(DAYS)
    total = runner.state_trajectory[-1][-1]["environment"]["daily_infected"].sum()
    begin = perf_counter()
    total.backward()
    return (perf_counter() - begin) * 1e3 / DAYS


def gradients(turns: int) -> list[str]:
    data = load("astoria")
    cases = {"from 45 exposed": data, "from a tenth infectious": tenth_infectious(data)}
    rows = []
    for name, start in cases.items():
        dense = made(start, active_set=False)
        runner = made(start)
        rate = torch.full((3, 1), 4.75, requires_grad=True)
        path = next(iter(dict(runner.named_parameters())))
        runner.set_parameters({path: rate})
        times = in_turns(
            {"dense": partial(forward, dense), "backward": partial(backward, runner)}, turns
        )
        ratio = interval(times["backward"] / times["dense"])
        rows.append(
            [
                name, text(interval(times["dense"])), text(interval(times["backward"])),
                text(ratio, 2),
            ]
        )  # fmt: skip
    header = ["21 Astoria days", "dense forward, ms a day", "backward, ms a day", "ratio"]
    return [table(header, rows)]


if __name__ == "__main__":
    main()
