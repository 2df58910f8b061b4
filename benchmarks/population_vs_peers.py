"""How long does a day of the covid model take here, and how long in AgentTorch, Covasim and Mesa?

Every turn is a process of its own, and the systems take turns, so that a slow minute of the
machine hits all of them; a ratio is of two systems in the same turn. What is equal in a system's
work and what is not stands in the first lines of its script in `population_peers/`. A system whose
venv is not in the folder given by `--peers` is left out, and the page says so; how to make the
venvs stands in population_peers/README.md.

    python benchmarks/population_vs_peers.py --peers PEERS \
        --markdown docs/benchmarks/population_peers.md
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval, percentile_interval, smooth_median
from hotloop.populations import load
from tables import table, write_page

SCRIPTS = Path(__file__).parent / "population_peers"
DRAWS = 2_000


@dataclass(frozen=True)
class System:
    name: str
    script: str
    venv: str | None = None
    """Folder in PEERS; None: runs in this Python."""
    mode: str = "forward"
    threads: int = 1
    """0: as many as it likes."""
    repeats: int = 2
    """Runs in a turn; about half a second of them."""
    work: str = "same model"
    """What it does, beside what hotloop does."""


OURS = System("hotloop", "run_hotloop.py", repeats=40, work="the model; who is active")
DENSE = System(
    "hotloop, dense", "run_hotloop.py", mode="dense", repeats=30,
    work="the model; every agent and edge",
)  # fmt: skip
PYG = "own model; every agent and edge, copies of all"
REFERENCE = System("AgentTorch", "run_agent_torch.py", "agent_torch", work=PYG)
REFERENCE_FREE = replace(REFERENCE, name="AgentTorch, its choice of threads", threads=0)
SYSTEMS = (
    OURS,
    replace(OURS, name="hotloop, two threads", threads=2),
    DENSE,
    System(
        "hotloop, substeps on tensors", "run_hotloop.py", mode="substeps", repeats=5,
        work="the model; every agent and edge",
    ),
    System("plain torch", "run_torch.py", repeats=10, work="same model; every agent and edge"),
    REFERENCE,
    REFERENCE_FREE,
    replace(REFERENCE, name="AgentTorch, no gradients kept", mode="no_grad"),
    System(
        "Covasim", "run_covasim.py", "covasim", repeats=8,
        work="own model; every edge, both ways",
    ),
    System(
        "mesa-frames", "run_mesa_frames.py", "mesa_frames", repeats=6,
        work="same model; every agent, edges of the infectious",
    ),
    System(
        "Mesa", "run_mesa.py", "mesa", work="same model; every agent, edges of the infectious"
    ),
)  # fmt: skip
GRADIENTS = (
    replace(OURS, mode="backward", repeats=8),
    replace(REFERENCE, mode="backward"),
    replace(REFERENCE_FREE, mode="backward"),
)


@dataclass(frozen=True)
class Case:
    title: str
    steps: int
    share: float | None
    """Share of the agents that is infected at the start; None: the population's own stages."""
    systems: Sequence[System]
    judged: System | None
    """Whose speed is held against the reference's, both in one thread."""
    wanted: float = 0.0


CASES = (
    Case("The first 21 days", 21, None, SYSTEMS, OURS, 170.0),
    Case(
        "Four days with a tenth infectious", 4, 0.1,
        [s for s in SYSTEMS if s.mode not in ("no_grad", "substeps")], DENSE, 50.0,
    ),
    Case("Gradient of all infections to R, 21 days", 21, None, GRADIENTS, None),
)  # fmt: skip
Outcomes = dict[System, list[dict[str, Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, required=True, help="the folder of venvs")
    parser.add_argument("--population", default="astoria")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--markdown", type=Path, help="write the page here")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    options = parser.parse_args()
    raw, parts, missing = {}, [INTRODUCTION], set()
    for case in CASES:
        present = [s for s in case.systems if python_of(s, options.peers) is not None]
        missing |= {s.venv for s in case.systems if s not in present}
        with tempfile.TemporaryDirectory() as temporary:
            people = write_population(Path(temporary, "p.npz"), options.population, case.share)
            outcomes = measure(case, present, people, options.peers, options.turns)
        raw[case.title] = {system.name: results for system, results in outcomes.items()}
        parts.append(f"## {case.title}")
        parts += gradient_parts(outcomes) if case.judged is None else parts_of(case, outcomes)
    parts[0] = parts[0].format(turns=options.turns, population=options.population)
    parts.append(versions(raw, sorted(missing)))
    write_page(
        options.markdown, "The covid model beside AgentTorch, Covasim and Mesa", parts,
        "benchmarks/population_vs_peers.py",
    )  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(raw) + "\n")


def write_population(path: Path, name: str, share: float | None) -> Path:
    """What every system reads: age, edges and stages."""
    people = load(name)
    stages = people.columns["stage"]
    if share is not None:
        stages = np.zeros(people.size, np.uint8)
        chosen = np.random.default_rng(0).permutation(people.size)[: round(share * people.size)]
        stages[chosen] = 2
    np.savez(path, age=people.columns["age"], edges=people.edges, stages=stages)
    return path


def python_of(system: System, peers: Path) -> str | None:
    if system.venv is None:
        return sys.executable
    python = peers / system.venv / "bin/python"
    return str(python) if python.exists() else None


def measure(
    case: Case, systems: Sequence[System], people: Path, peers: Path, turns: int
) -> Outcomes:
    outcomes: Outcomes = {system: [] for system in systems}
    for turn in range(-1, turns):  # the first fills the caches on disk
        first = turn % len(systems)
        for system in [*systems[first:], *systems[:first]]:
            outcome = run(system, case.steps, people, peers, 1000 * max(turn, 0))
            if turn >= 0:
                outcomes[system].append(outcome)
                print(f"{case.title}: {turn:3d} {system.name:35s} {step_ms(outcome):8.3f} ms",
                      file=sys.stderr, flush=True)  # fmt: skip
    return outcomes


def run(system: System, steps: int, people: Path, peers: Path, seed: int) -> dict[str, Any]:
    command = [
        python_of(system, peers) or "", SCRIPTS / system.script, people, steps, system.repeats,
        "--mode", system.mode, "--threads", system.threads, "--first-seed", seed,
        "--source", peers / "AgentTorch",
    ]  # fmt: skip
    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
        environment.pop(name, None)
        if system.threads:
            environment[name] = str(system.threads)
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=environment,
        timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{system.name} failed:\n{done.stderr[-2000:]}")
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def step_ms(outcome: dict[str, Any]) -> float:
    """Milliseconds a day: the median over the turn's runs of each one's mean."""
    return 1e3 * float(np.median([np.mean(seconds) for seconds in outcome["seconds"]]))


def parts_of(case: Case, outcomes: Outcomes) -> list[str]:
    assert case.judged is not None
    rows = []
    ours = np.array([step_ms(o) for o in outcomes[case.judged]])
    for system, results in outcomes.items():
        times = np.array([step_ms(o) for o in results])
        took, against = median(times), median(times / ours)
        caught = np.array([sum(days) for o in results for days in o["infected"]])
        deviation = 2 * caught.std(ddof=1) / len(caught) ** 0.5
        agents = results[0]["agents"]
        rows.append([
            system.name, show(took, 3), "" if system is case.judged else show(against, 1),
            f"{agents / took.value / 1e3:.1f}",
            f"{caught.mean():.0f} ± {deviation:.0f}",
            f"{np.median([o['peak_bytes'] for o in results]) / 2**20:.0f}",
            f"{np.median([o['grown_bytes'] for o in results]) / 2**20 / case.steps:.2f}",
            system.work,
        ])  # fmt: skip
    header = [
        "system", "ms a day", f"over {case.judged.name}", "million agent-days/s",
        "infected in all, mean ± 2 s.e.", "peak MB", "MB kept a day", "work",
    ]  # fmt: skip
    return [table(header, rows), verdict(case, outcomes, ours)]


def verdict(case: Case, outcomes: Outcomes, ours: np.ndarray) -> str:
    assert case.judged is not None
    theirs = [s for s in (REFERENCE, REFERENCE_FREE) if s in outcomes]
    if not theirs:
        return ""
    times = np.array([[step_ms(o) for o in outcomes[s]] for s in theirs])
    against = median(times.min(axis=0) / ours)
    judged = (
        "reached" if against.low >= case.wanted else
        "missed" if against.high < case.wanted else "not decided"
    )  # fmt: skip
    return (
        f"Wanted: {case.judged.name} at least {case.wanted:g} times as fast as AgentTorch, the "
        f"faster of its two thread counts in each turn: **{judged}**, {show(against, 0)}."
    )


def gradient_parts(outcomes: Outcomes) -> list[str]:
    rows = []
    for system, results in outcomes.items():
        forward = np.array([step_ms(o) for o in results])
        steps = len(results[0]["seconds"][0])
        backward = np.array([1e3 * np.median(o["backward_seconds"][1:]) for o in results]) / steps
        rows.append([
            system.name, show(median(forward), 3), show(median(backward), 3),
            show(median(backward / forward), 2),
        ])  # fmt: skip
    header = ["system", "forward, ms a day", "backward, ms a day", "backward over forward"]
    return [table(header, rows), LAYOUT]


def median(values: np.ndarray) -> Interval:
    drawn = np.random.default_rng(0).integers(0, len(values), (DRAWS, len(values)))
    return percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))


def show(value: Interval, digits: int) -> str:
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def versions(raw: dict[str, dict[str, list[dict[str, Any]]]], missing: Sequence[str]) -> str:
    lines = {}
    for systems in raw.values():
        for results in systems.values():
            first = results[0]
            lines[first["system"]] = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    text = "\n".join(f"- {system}: {versions}" for system, versions in lines.items())
    left_out = f"\n\nLeft out, because their venv was not there: {', '.join(missing)}."
    return f"Versions:\n\n{text}" + (left_out if missing else "")


INTRODUCTION = """\
Population `{population}`, written once and read by every system. {turns} turns; in each, every \
system is a process of its own that runs once uncounted and then some times from the start. \
Medians with 95% intervals; a ratio is of the same turn, against hotloop in one thread. One \
thread, where nothing else is said. What each system does and how its work differs: \
`benchmarks/population_peers/README.md`."""

LAYOUT = """\
Every run is a fresh one here: hotloop's way back includes sorting the network for it, once for a \
start, most of the time. A runner that is kept goes back in about twice a dense day: \
[population](population.md). AgentTorch's gradient follows the infections of the same day only; \
[gradients](gradients.md) says what that leaves out."""


if __name__ == "__main__":
    main()
