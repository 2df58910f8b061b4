"""How fast is a day of the covid model on this card, and how far from what its memory allows?

One command, ten minutes at most: runs the tests that need a card, compares the card's counts with
the CPU's bit for bit, and climbs the ladder: substeps as they are, a day or all days in a call; a
captured graph; mixed precision; copies for the record beside the computing or within; ensembles;
backward. Beside them the CPU's program on the same host, and two probes of the card's memory. All
ways of a table take turns. Raw results are appended to a file, from which a run that was broken
off goes on; delete it to measure anew. What does not fit the time, the largest populations first,
is left out and named; what does not fit the card's memory is told in its row.

    python benchmarks/population_gpu.py
    python benchmarks/population_gpu.py --minutes 5 --sizes 37518,300000
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from card import Card, CudaCard, MovedBytes, StandIn
from hotloop.errors import CapacityError
from hotloop.populations import PopulationData, load
from hotloop.sim import Record, Runner
from hotloop.sim.network import Network
from population_gpu_page import page_parts
from population_runs import DAYS, day_bytes, in_turns, made, tenth_infectious
from tables import write_page

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/benchmarks/population_gpu.md"
RESULTS = ROOT / "docs/benchmarks/population_gpu.jsonl"
ASTORIA = 37_518
SIZES = (ASTORIA, 300_000, 2_700_000, 10_000_000)
SEEDS = (0, 1, 2)
# Of the minutes: an estimate may be wrong, and Python has to start and end.
USED_SHARE = 0.95
OWN = ("card", "population_gpu", "population_runs")
TOO_LARGE = (torch.cuda.OutOfMemoryError, CapacityError, MemoryError)
INFECTED, DEATHS = "environment/daily_infected", "environment/daily_deaths"
ENDS = [f"agents/citizens/{name}" for name in ("disease_stage", "infected_time")]
CPU = f"CPU: fused, {len(os.sched_getaffinity(0))} threads"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: stand-ins")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="agents, by commas")
    parser.add_argument("--days", default="21,100", help="of a ladder, by commas")
    parser.add_argument("--replicates", default="100,1000", help="of ensembles, by commas")
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--tests", nargs="*", default=["tests"], help="where marked tests are")
    parser.add_argument("--results", type=Path, help=f"raw results; {RESULTS.name} on a card")
    parser.add_argument("--markdown", type=Path, help=f"the page; {PAGE.name} on a card")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "population_gpu.py: torch sees no CUDA card on this machine; run it where there is one "
            "(--device cpu runs its logic on CPU tensors, for tests)"
        )
    on_card = options.device == "cuda"
    card: Card = CudaCard() if on_card else StandIn()
    results = options.results or (RESULTS if on_card else None)
    session = Session(card, results, options.minutes * 60 * USED_SHARE)
    ladder = Ladder(card, options.turns)
    jobs = planned(ladder, options)
    path = options.markdown or (PAGE if on_card else None)
    for number, job in enumerate(jobs, 1):
        session.do(job)
        # After each: a run that is broken off leaves a page, which says how far it came.
        write_page(
            path,
            "Populations on a card",
            page_parts(card, session, jobs, CPU),
            "benchmarks/population_gpu.py",
            show=number == len(jobs),
        )


# --- what is done, in which order, for how long -------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One table's part: rows of one population and one kind.

    size: agents that are stepped at once; what a job takes grows with it.
    """

    kind: str
    size: int
    run: Callable[[], list[dict[str, Any]]]
    detail: str = ""

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.kind, self.detail, f"{self.size:,} agents") if part)


def planned(ladder: "Ladder", options: argparse.Namespace) -> list[Job]:
    """Small ones first: what no time is left for is the largest."""
    sizes, days, replicates = (
        [int(number) for number in getattr(options, name).split(",")]
        for name in ("sizes", "days", "replicates")
    )
    small = min(sizes)
    first = [
        Job("tests", 0, partial(marked_tests, options)),
        Job("bits", small, partial(ladder.bits, small)),
        Job("backward", small, partial(ladder.backward, small)),
    ]
    others = [Job("copies", size, partial(ladder.copies, size)) for size in sizes]
    for size in sizes:
        others += [
            Job(f"ladder of {count} days", size, partial(ladder.climb, size, count))
            for count in days
        ]
        others.append(Job("floors", size, partial(ladder.floors, size)))
    for count in replicates:
        run = partial(ladder.ensembles, small, count)
        others.append(Job("ensembles", small * count, run, f"of {count:,}"))
    return first + sorted(others, key=lambda job: job.size)


@dataclass
class Session:
    """What was measured before on this card with this code, and what is now, while time is left."""

    card: Card
    results: Path | None
    seconds: float
    clock: Callable[[], float] = perf_counter
    done: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = {**self.card.facts(), "code": code_hash()}
        self._begin = self.clock()
        if self.results is not None and self.results.exists():
            lines = read(self.results)
            self.done = {line["job"]: line for line in lines if line["key"] == self.key}

    def do(self, job: Job) -> None:
        """Run a job that was not done before, if it can be over in time."""
        before = self.done.get(job.name)
        if before is not None and not any(row.get("failed") for row in before["rows"]):
            return
        left = self.seconds - (self.clock() - self._begin)
        needed = self._estimate(job)
        if left <= 0 or needed > left:
            self.left_out[job.name] = f"about {needed:.0f} s needed, {max(left, 0):.0f} s left"
            return
        begin = self.clock()
        try:
            rows = job.run()
        except Exception as error:  # a section that fails is told, and the others go on
            rows = [failed(job.name, error)]
        self.card.release()
        line = {
            "key": self.key, "job": job.name, "kind": job.kind, "size": job.size,
            "seconds": self.clock() - begin, "rows": rows,
        }  # fmt: skip
        self.done[job.name] = line
        if self.results is not None:
            with self.results.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def _estimate(self, job: Job) -> float:
        """By the largest jobs of its kind that are done: on the line through two, or from 0."""
        like = sorted(
            (line["size"], line["seconds"])
            for line in self.done.values()
            if line["kind"] == job.kind and line["size"]
        )
        if not like:
            return 0.0
        (less, before), (most, last) = [(0, 0.0), *like][-2:]
        slope = max(0.0, (last - before) / (most - less))
        return float(last + slope * max(0, job.size - most))


def read(results: Path) -> list[dict[str, Any]]:
    """The lines that are whole; one that was broken off is cut away, so that others can follow."""
    found = results.read_text()
    if found and not found.endswith("\n"):
        whole = found[: found.rfind("\n") + 1]
        results.write_text(whole)
        found = whole
    return [json.loads(line) for line in found.splitlines()]


def failed(name: str, error: BaseException) -> dict[str, Any]:
    """A row that says why there are no numbers; what did not fit is not tried again."""
    what = "out of memory" if isinstance(error, TOO_LARGE) else type(error).__name__
    lines = str(error).strip().splitlines() or [""]
    row = {"name": name, "error": f"{what}: {lines[0][:160]}"}
    return row if isinstance(error, TOO_LARGE) else {**row, "failed": True}


def code_hash() -> str:
    """Of the sources that are measured: results of other code are not gone on with."""
    sources = sorted((ROOT / "src/hotloop/sim").rglob("*.py"))
    sources += sorted((ROOT / "src/hotloop/models").rglob("*.py"))
    sources += [ROOT / "benchmarks" / f"{name}.py" for name in OWN]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]


# --- the tests that need a card -----------------------------------------------------------------


def marked_tests(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run what is marked `gpu`; with stand-ins, see only that it is found."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-m", "gpu", "-rfE", "--tb=line"]
    if options.device == "cpu":
        command.append("--collect-only")
    limit = options.minutes * 60 / 2
    found = subprocess.run(
        [*command, "-q", *options.tests],
        cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False,
    )  # fmt: skip
    lines = [line.strip() for line in found.stdout.splitlines() if line.strip()]
    counts = {
        what: int(number)
        for number, what in re.findall(
            r"(\d+)(?:/\d+)? (passed|failed|errors?|skipped|tests? collected)",
            lines[-1] if lines else "",
        )
    }
    row = {
        "name": "tests marked gpu",
        "counts": counts,
        "exit": found.returncode,
        "last": lines[-1] if lines else found.stderr.strip()[-300:],
        "problems": [line for line in lines if line.startswith(("FAILED", "ERROR"))],
    }
    # Tests that failed are run again where a broken-off run goes on: they may have been mended.
    return [row if found.returncode == 0 else {**row, "failed": True}]


# --- the ladder ---------------------------------------------------------------------------------


@dataclass
class Rung:
    """One way to run: what makes its runner, and what is timed of it, in ms of one day."""

    name: str
    make: Callable[[], Runner]
    run: Callable[[Runner], float]


@cache
def town(size: int, *, dense: bool = False) -> tuple[PopulationData, Network]:
    """A population and its network, which all runners share."""
    if dense:
        data, network = town(size)
        return tenth_infectious(data), network
    data = load("astoria" if size == ASTORIA else size)
    return data, Network.from_edges(data.size, data.edges)


@dataclass
class Ladder:
    """Ways of the covid model on a card, and on the CPU of its host."""

    card: Card
    turns: int

    def _there(self, size: int) -> None:
        """Bring a population's network to the card, where all ways share it."""
        town(size)[1].on(self.card.device)

    def _captured_rungs(self, make: Any, work: Any) -> list[Rung]:
        mixed = partial(make, precision="mixed")
        return [
            Rung("captured graph", partial(self.card.captured, make), work),
            Rung("captured graph, mixed precision", partial(self.card.captured, mixed), work),
        ]

    def climb(self, size: int, days: int) -> list[dict[str, Any]]:
        """One run of a population from its exposed."""
        make = partial(self._made, size, days)
        at_once, by_day = partial(self._timed, days, days), partial(self._timed, days, 1)
        rungs = [
            Rung("substeps, a call a day", make, by_day),
            Rung("substeps, all days in a call", make, at_once),
            *self._captured_rungs(make, at_once),
            Rung(CPU, partial(self._on_cpu, size, days), at_once),
        ]
        return self._measured(rungs, size)

    def floors(self, size: int) -> list[dict[str, Any]]:
        """A day of the captured graph beside what the card's memory allows."""
        data, network = town(size)
        make = partial(self._made, size, DAYS)
        runner = self.card.captured(make)
        plain = make()
        plain.step(1)
        with MovedBytes() as moved:
            plain.step(1)
        ways = {"captured graph": partial(self._timed, DAYS, DAYS, runner), **self._probes(network)}
        times = in_turns(ways, self._turns_of(size))
        plain.close()
        runner.close()
        return [
            {
                "name": name, "ms": ms.tolist(), "moved": moved.total, "floor": day_bytes(network),
                "edges": network.num_edges, "agents": data.size,
            }
            for name, ms in times.items()
        ]  # fmt: skip

    def _probes(self, network: Network) -> dict[str, Callable[[], float]]:
        """A copy of a dense day's bytes, and a number for each edge from anywhere."""
        device = self.card.device
        ids = network.on(device).src
        source = torch.ones(day_bytes(network), dtype=torch.uint8, device=device)
        goal = torch.empty_like(source)
        ways: dict[str, Callable[[], Any]] = {"copy": partial(goal.copy_, source)}
        for name, dtype in (("gather of 4 bytes", torch.int32), ("gather of 1 byte", torch.uint8)):
            values = torch.ones(network.num_agents, dtype=dtype, device=device)
            out = torch.empty(network.num_edges, dtype=dtype, device=device)
            ways[name] = partial(torch.index_select, values, 0, ids, out=out)
        return {name: partial(self.card.events_ms, way, 10) for name, way in ways.items()}

    def copies(self, size: int) -> list[dict[str, Any]]:
        """All agents kept each day: copied beside the computing, and in its stream."""
        days, agents = DAYS, Record(agents=True)
        make = partial(self._made, size, days)

        def within(runner: Runner) -> float:
            def copier() -> None:
                runner._recorder._copier = self.card.copier_in_stream()

            return self._timed(days, days, runner, copier)

        rungs = []
        for way, maker in (
            ("substeps", lambda **more: make(**more)),
            ("captured graph", lambda **more: self.card.captured(partial(make, **more))),
        ):
            at_once = partial(self._timed, days, days)
            kept = partial(maker, record=agents)
            rungs += [
                Rung(f"{way}, nothing copied", maker, at_once),
                Rung(f"{way}, copies in a stream of their own", kept, at_once),
                Rung(f"{way}, copies in the computing stream", kept, within),
            ]
        return self._measured(rungs, size)

    def ensembles(self, size: int, replicates: int) -> list[dict[str, Any]]:
        """Replicates in one batch."""
        make = partial(self._made, size, DAYS, replicates=replicates)
        at_once = partial(self._timed, DAYS, DAYS)
        rungs = [
            Rung("substeps", make, at_once),
            *self._captured_rungs(make, at_once),
            Rung(CPU, partial(self._on_cpu, size, DAYS, replicates=replicates), at_once),
        ]
        return self._measured(rungs, size, replicates)

    def bits(self, size: int) -> list[dict[str, Any]]:
        """Whether the card counts what the CPU counts."""
        rows = []
        for seed in SEEDS:
            make = partial(self._made, size, DAYS, dense=seed > 0, seed=seed)
            with self._on_cpu(size, DAYS, dense=seed > 0, seed=seed) as cpu:
                cpu.step(DAYS)
                row: dict[str, Any] = {"name": f"seed {seed}", "infected": _sum(cpu, INFECTED)}
                for way, maker in (
                    ("substeps", make),
                    ("captured graph", partial(self.card.captured, make)),
                    ("mixed precision", partial(make, precision="mixed")),
                ):
                    with maker() as runner:
                        runner.step(DAYS)
                        row[way] = {
                            path: int((runner.state[path].cpu() != cpu.state[path]).sum())
                            for path in (INFECTED, DEATHS, *ENDS)
                        }
                rows.append(row)
        return rows

    def backward(self, size: int) -> list[dict[str, Any]]:
        """The gradient of all infections by R, from a run on the card."""
        rows = []
        make = partial(self._made, size, DAYS, dense=True)
        for name, maker in (
            ("captured graph on the card", partial(self.card.captured, make)),
            (CPU, partial(self._on_cpu, size, DAYS, dense=True)),
        ):
            with maker() as plain, maker() as runner:
                path = next(path for path, _ in runner.named_parameters() if path.endswith("R2"))
                rate = torch.full((3, 1), 4.75, device=runner.device, requires_grad=True)
                runner.set_parameters({path: rate})
                ways = {
                    "forward": partial(self._timed, DAYS, DAYS, plain),
                    "backward": partial(self._back, runner, rate),
                }
                for way, ms in in_turns(ways, self.turns).items():
                    gradient = rate.grad.flatten().tolist()
                    rows.append({"name": f"{way}, {name}", "ms": ms.tolist(), "gradient": gradient})
        return rows

    def _back(self, runner: Runner, rate: torch.Tensor) -> float:
        """Milliseconds of going back through a run, for each day; the run itself is not timed."""
        rate.grad = None
        runner.reset()
        runner.step(DAYS)
        total = runner.state_trajectory[-1][-1]["environment"]["daily_infected"].sum()
        self.card.synchronize()
        begin = perf_counter()
        total.backward()
        self.card.synchronize()
        return (perf_counter() - begin) * 1e3 / DAYS

    # --- how it is measured ---------------------------------------------------------------------

    def _measured(
        self, rungs: Sequence[Rung], size: int, replicates: int = 1
    ) -> list[dict[str, Any]]:
        """Rows of the rungs in turns; one that fails is told, and the others go on."""
        self._there(size)
        runners: dict[str, Runner] = {}
        rows = {rung.name: self._started(rung, runners) for rung in rungs}
        ways = {rung.name: rung.run for rung in rungs if rung.name in runners}
        try:
            timed = {name: partial(run, runners[name]) for name, run in ways.items()}
            for name, ms in in_turns(timed, self._turns_of(size * replicates)).items():
                recorder = runners[name]._recorder
                rows[name] |= {
                    "ms": ms.tolist(),
                    "infected": _sum(runners[name], INFECTED),
                    "agents": size * replicates,
                    "copied": recorder.snapshot_bytes,
                    "on_card": name != CPU,
                }
        finally:
            for runner in runners.values():
                runner.close()
        return list(rows.values())

    def _started(self, rung: Rung, runners: dict[str, Runner]) -> dict[str, Any]:
        """The runner of a rung after its first run, and the memory of the card that it took."""
        self.card.count_memory()
        try:
            runner = rung.make()
            rung.run(runner)
        except Exception as error:  # told in its row
            row = failed(rung.name, error)
        else:
            runners[rung.name] = runner
            return {"name": rung.name, "peak": self.card.peak_bytes()}
        runner = None
        self.card.release()
        return row

    def _timed(
        self, days: int, at_once: int, runner: Runner, prepare: Callable[[], None] = lambda: None
    ) -> float:
        """Milliseconds of a day from the start, the card synchronised before and after."""
        runner.reset()
        prepare()
        self.card.synchronize()
        begin = perf_counter()
        for _ in range(0, days, at_once):
            runner.step(at_once)
        self.card.synchronize()
        return (perf_counter() - begin) * 1e3 / days

    def _made(self, size: int, days: int, *, dense: bool = False, **settings: Any) -> Runner:
        """On the card; `fused=False` leaves the stand-in no program, as on a card."""
        data, network = town(size, dense=dense)
        settings = {"device": self.card.device, "fused": False, "threads": None, **settings}
        return made(data, days, network=network, **settings)

    def _on_cpu(self, size: int, days: int, *, dense: bool = False, **settings: Any) -> Runner:
        data, network = town(size, dense=dense)
        return made(data, days, network=network, threads=None, **settings)

    def _turns_of(self, agents: int) -> int:
        return self.turns if agents < 5_000_000 else min(self.turns, max(5, self.turns // 3))


def _sum(runner: Runner, path: str) -> float:
    return float(runner.state[path].to(torch.float64).sum())


if __name__ == "__main__":
    main()
