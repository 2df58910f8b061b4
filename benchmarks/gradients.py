"""How good, how noisy and how dear is each way to differentiate an epidemic?

The covid model on Astoria, R = 4.75 in every week, M = 0.12. The derivative of total infections by
each week's R, and of deaths by these and M, against central differences on common random numbers;
every estimator on the same terms, along the same runs; and what a step backwards costs beside a
dense step forwards, at 10% infectious. One thread.

    python benchmarks/gradients.py --markdown docs/benchmarks/gradients.md
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotloop.models.epidemic.covid import disease
from hotloop.models.epidemic.gradient import (
    ExpectedModel,
    Flips,
    MessagePassing,
    Relaxed,
    Score,
    SpreadProblem,
    SpreadStart,
    StraightThrough,
    default_estimator,
    expected_curves,
    short_loops,
    simulate,
)
from hotloop.models.epidemic.program import SpreadColumns, SpreadProgram
from hotloop.models.epidemic.spread import SpreadInputs
from hotloop.populations import astoria, load
from hotloop.sim.network import Network
from tables import table, write_page

R, M = 4.75, 0.12
BATCH = 25
COUNTED = 0.05  # of the largest week: below, only the absolute error is judged


def start(source: Any = astoria) -> SpreadStart:
    data = load(source)
    stage = np.asarray(data.columns["stage"], np.uint8)
    infected_time = np.full(len(stage), disease.UNSET, np.int16)
    next_time = infected_time.copy()
    for each, since in disease.INITIAL_INFECTED_TIME.items():
        infected_time[stage == each] = since
        next_time[stage == each] = disease.INITIAL_NEXT_STAGE_TIME[each]
    network = Network.from_edges(data.size, data.edges)
    group = data.columns["age"].astype(np.uint8)
    return SpreadStart(disease.spread(), network, group, stage, infected_time, next_time)


def at_a_tenth(begin: SpreadStart) -> SpreadStart:
    """Everyone susceptible but for 10%, infected one to ten days ago."""
    rng, size = np.random.default_rng(0), begin.network.num_agents
    infected = rng.random(size) < 0.1
    since = -rng.integers(1, 11, size)
    late = since <= -6
    stage = np.where(infected, np.where(late, 2, 1), 0)
    following = np.where(infected, since + np.where(late, 11, 6), disease.UNSET)
    return replace(
        begin,
        compartment=stage.astype(np.uint8),
        infected_time=np.where(infected, since, disease.UNSET).astype(np.int16),
        next_time=following.astype(np.int16),
    )


# ruff: noqa: E501
FLOOR = """A step back reads each edge once, as a dense step forward does, but gathers four bytes where that gathers one, and passes over a ring of twelve steps for every agent that can be infected. At a million agents, profiled: gathering by edge 55%, the ring 20%, the other columns 10%. With a tenth infectious a fifth of all agents are infected within the eleven steps, and those have pairs of their own: a third of the time goes to them, and a sixth to setting them up, over eleven steps only."""

LOOPS = """## Short loops: where message passing is right

4,000 agents with about eight contacts each, one way and in random direction unless said, R = 9 for 28 steps; bias of the derivative of all infections by all rates, against differences of ±10%. Loops are what `get_performance_stats()` shows; above 0.05, 0.3 or 5 of them flips are the default.

"""

LOSSES = """## Losses that are not linear in the counts

Astoria, 21 steps; L is the mean squared distance of daily infections to 1.5 times their mean. Derivatives by the rate of week 1 of E[L], the expected loss of one run, and of L(E[counts]).

"""

WHY = """## Why they differ

- **Message passing along the run** has no bias on directed trees, and follows each run's own luck: an early epidemic saturates early. Contacts that go both ways let an infection return, in the adjoint, to where it came from; there the default is flips.
- **The expected model** knows no luck. It is exact early; where few infections decide when the wave comes and how far it goes, it misses what a whole epidemic has in common: over 100 days here it is 13% too small for the first week and 54% too large for the worst one.
- **Straight-through** with the chain kept counts whoever was not infected in the run as wholly susceptible and a transmission that happened with the chance left after it; cut, as in the reference, it sees only the week itself.
- **Relaxed** draws infect everybody a little; cool ones do not, and their gradients are few large numbers.
- **Flips** and the **score function** have no bias on any network. Flips pay by replays; the score function is nearly free and needs thousands of runs."""


def grouped(size: int, group: int, moved: float, rng: np.random.Generator) -> np.ndarray:
    """Everybody is joined to everybody in its group; a share of edges leads anywhere instead."""
    a, b = np.triu_indices(group, 1)
    ids = rng.permutation(size)[: size // group * group].reshape(-1, group)
    edges = np.stack([ids[:, a].ravel(), ids[:, b].ravel()], 1)
    edges = rng.permuted(edges, axis=1)
    elsewhere = rng.random(len(edges)) < moved
    edges[elsewhere, 1] = rng.integers(0, size, elsewhere.sum())
    return edges


def returning(size: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Contacts at random, of which a share goes both ways."""
    edges = rng.integers(0, size, (4 * size, 2))
    return np.concatenate([edges, edges[rng.random(len(edges)) < share][:, ::-1]])


def on_network(edges: np.ndarray, size: int, rng: np.random.Generator) -> SpreadStart:
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0).astype(np.int32)
    stage = np.zeros(size, np.uint8)
    stage[rng.choice(size, size // 60, replace=False)] = 1
    return SpreadStart(
        disease.spread(),
        Network.from_edges(size, edges),
        rng.integers(0, 6, size).astype(np.uint8),
        stage,
        np.where(stage, -1, disease.UNSET).astype(np.int16),
        np.where(stage, 3, disease.UNSET).astype(np.int16),
    )


def short_loops_table(runs: int, size: int = 4_000) -> str:
    rng = np.random.default_rng(0)
    cases = [("at random", returning(size, 0.0, rng))]
    cases += [
        (f"groups of nine, {moved:.0%} of contacts elsewhere", grouped(size, 9, moved, rng))
        for moved in (0.0, 0.2, 0.4, 0.6, 0.8)
    ]
    cases += [(f"{share:.1%} both ways", returning(size, share, rng)) for share in (0.025, 0.3)]
    rows = []
    for name, edges in cases:
        begin = on_network(edges, size, rng)
        problem = SpreadProblem(begin, np.full(4, 9.0), M, 28)
        loops = short_loops(begin.network)
        found, error = mean_and_error(sampled(MessagePassing(), problem, runs)[0][0, :4].sum(0))
        # All weeks at once: the derivative along the rates' own direction.
        totals = Totals(problem, 2 * runs)
        up, down = (totals.of(problem.at(problem.rate * (1 + s)))[0] for s in (0.1, -0.1))
        difference, spread = mean_and_error((up - down) / (2 * 0.1 * 9.0))
        off = found / difference - 1
        both = np.hypot(error, spread) / difference
        rows.append(
            [name, f"{loops.back:.3f}", f"{loops.two:.2f}", f"{loops.three:.1f}",
             f"{off:+.1%} ± {both:.1%}", default_estimator(begin).name.replace("_", " ")]
        )  # fmt: skip
    header = ["network", "back", "routes of two", "routes of three", "bias of message passing",
              "default"]  # fmt: skip
    return table(header, rows)


def losses_table(seeds: int) -> str:
    problem = SpreadProblem(start(), np.full(3, R), M, 21)
    mean = simulate(problem.at(seeds=tuple(range(10**6, 10**6 + 200)))).infected.mean(0)
    target = torch.from_numpy(1.5 * mean)

    def loss(infected: torch.Tensor, _deaths: torch.Tensor) -> torch.Tensor:
        return ((infected - target) ** 2).mean()

    def curves(share: float) -> np.ndarray:
        rate = problem.rate.copy()
        rate[0] *= 1 + share
        parts = (problem.at(rate, seeds=tuple(range(b, b + BATCH))) for b in range(0, seeds, BATCH))
        return np.concatenate([simulate(p).infected for p in parts]).astype(np.float64)

    up, down, width = curves(0.2), curves(-0.2), 0.4 * R
    of_runs = ((up - target.numpy()) ** 2 - (down - target.numpy()) ** 2).mean(1) / width
    of_mean = 2 * ((mean - target.numpy()) * (up - down)).mean(1) / width
    flipped, by_mean, by_run = [], [], []
    for seed in range(seeds):
        one = problem.at(seeds=(seed,))
        run = simulate(one)
        one = replace(one, infected_time=run.infected_time)
        flipped.append(Flips().of_loss(one, loss, run)[1].rate[0])
        for found, counts in ((by_mean, mean), (by_run, run.infected[0])):
            weights = 2 * (counts - target.numpy()) / problem.steps
            found.append(MessagePassing().vjp(one, weights, np.zeros(problem.steps)).rate[0])
    rows = []
    for what, values in (
        ("E[L], differences", of_runs),
        ("E[L], `expected_loss` (flips that ask the loss again)", np.array(flipped)),
        ("L(E[counts]), differences", of_mean),
        ("L(E[counts]), loss of the mean over replicates", np.array(by_mean)),
        ("loss of each run's counts, averaged: neither", np.array(by_run)),
    ):
        value, error = mean_and_error(values)
        rows.append([what, f"{value:.2f} ± {error:.2f}"])
    return table(["", "derivative"], rows)


class Totals:
    """Total infections and deaths of many runs, and their central differences."""

    def __init__(self, problem: SpreadProblem, seeds: int) -> None:
        self.problem, self.seeds = problem, seeds

    def of(self, problem: SpreadProblem) -> np.ndarray:
        """(2, seeds)."""
        parts = []
        for begin in range(0, self.seeds, BATCH):
            runs = simulate(problem.at(seeds=tuple(range(begin, begin + BATCH))))
            parts.append(np.stack([runs.infected.sum(1), runs.deaths.sum(1)]))
        return np.concatenate(parts, axis=1).astype(np.float64)

    def differences(self, share: float) -> np.ndarray:
        """(2, weeks + 1, seeds): of infections and deaths, by each week's R and by M."""
        problem, found = self.problem, []
        for week in range(len(problem.rate)):
            step = np.zeros(len(problem.rate))
            step[week] = share * R
            up, down = (self.of(problem.at(problem.rate + s)) for s in (step, -step))
            found.append((up - down) / (2 * share * R))
        up, down = (self.of(problem.at(mortality=M * (1 + s))) for s in (share, -share))
        found.append((up - down) / (2 * share * M))
        return np.stack(found, axis=1)


def sampled(estimator: Any, problem: SpreadProblem, runs: int, group: int = 1) -> tuple[Any, float]:
    """Gradients by run of infections and deaths, (2, weeks + 1, samples), and ms for each run.

    group: runs that an estimator needs together; its samples are their means.
    """
    ones, zeros = np.ones(problem.steps), np.zeros(problem.steps)
    samples, seconds = [], []
    for begin in range(0, runs, group):
        asked = problem.at(seeds=tuple(range(begin, begin + group)))
        asked = replace(asked, infected_time=simulate(asked).infected_time)
        row = []
        for weights in ((ones, zeros), (zeros, ones)):
            began = time.perf_counter()
            by_rate, by_mortality, *_ = estimator.vjp(asked, *weights)
            seconds.append((time.perf_counter() - began) / group)
            row.append(np.append(by_rate, by_mortality) / group)
        samples.append(row)
    return np.moveaxis(np.array(samples), 0, 2), float(np.median(seconds)) * 1e3


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    samples = values.shape[-1]
    spread = values.std(-1, ddof=1) if samples > 1 else np.zeros(values.shape[:-1])
    return values.mean(-1), spread / np.sqrt(samples)


def agreement(
    wide: np.ndarray, narrow: np.ndarray, found: np.ndarray, limit: float
) -> tuple[str, str]:
    """Message passing against both differences, and a sentence that counts what agrees."""
    rows, passed, near, judged = [], 0, 0, 0
    for n, what in enumerate(("infections", "deaths")):
        places = range(wide.shape[1] - (n == 0))
        (a, a_error), (b, b_error), (g, g_error) = (
            mean_and_error(v[n]) for v in (wide, narrow, found)
        )
        largest = np.abs(a[: wide.shape[1] - 1]).max()
        for k in places:
            off, both = g[k] - a[k], np.hypot(a_error[k], g_error[k])
            name = "M" if k == wide.shape[1] - 1 else f"R, week {k + 1}"
            counted = name == "M" or abs(a[k]) > COUNTED * largest
            fine, fine_near = (
                _agrees(g[k] - d[k], np.hypot(error[k], g_error[k]), d[k], counted, limit, largest)
                for d, error in ((a, a_error), (b, b_error))
            )
            judged, passed, near = judged + 1, passed + fine, near + fine_near
            rows.append(
                [
                    what,
                    name,
                    f"{a[k]:.1f} ± {a_error[k]:.1f}",
                    f"{b[k]:.1f} ± {b_error[k]:.1f}",
                    f"{g[k]:.1f} ± {g_error[k]:.1f}",
                    f"{100 * off / a[k]:+.1f}%"
                    if counted
                    else f"{100 * off / largest:+.2f}% of largest",
                    f"{off / both:+.1f}" if both > 0 else "0",
                    "yes" if fine else "NO",
                ]
            )
    header = ["of", "by", "difference ±20%", "±5%", "message passing", "off", "off, SE", "agrees"]
    sentence = (
        f"{passed} of {judged} agree with the differences of ±20%, {near} with those of ±5%, which "
        "are noisier and less curved. Two standard errors leave one in twenty to chance."
    )
    return table(header, rows), sentence


def _agrees(
    off: float, error: float, wanted: float, counted: bool, limit: float, largest: float
) -> bool:
    if not counted:
        return abs(off) <= 0.02 * largest
    return abs(off) <= 2 * error and abs(off) <= limit * abs(wanted)


def estimator_row(
    name: str, found: np.ndarray, ms: float, reference: np.ndarray, per_run: float
) -> list[str]:
    (wanted, wanted_error), (mean, error) = mean_and_error(reference[0]), mean_and_error(found[0])
    weeks = np.flatnonzero(np.abs(wanted[:-1]) > COUNTED * np.abs(wanted[:-1]).max())
    off = mean[weeks] - wanted[weeks]
    both = np.hypot(error[weeks], wanted_error[weeks])
    share = off / wanted[weeks]
    worst = int(np.argmax(np.abs(share)))
    total = mean[weeks].sum() / wanted[weeks].sum() - 1
    noise = (found[0].std(-1, ddof=1) if found.shape[-1] > 1 else 0 * mean)[weeks] * np.sqrt(
        per_run
    )
    relative = noise / np.abs(wanted[weeks])
    return [
        name,
        f"{100 * total:+.0f}%",
        f"{100 * share[0]:+.0f}% ({off[0] / both[0]:+.1f} SE)",
        f"{100 * share[worst]:+.0f}% ({off[worst] / both[worst]:+.1f} SE)",
        f"{100 * np.median(relative):.0f}%",
        f"{ms:.1f}",
    ]


def estimators(problem: SpreadProblem, reference: np.ndarray, runs: int) -> str:
    dense = max(8, runs // 8)
    ways: list[tuple[str, Any, int, int]] = [
        ("message passing along the run (default)", MessagePassing(), runs, 1),
        ("expected model", ExpectedModel(), 1, 1),
        ("straight-through, chain kept", StraightThrough(), dense, 1),
        ("straight-through, chain cut", StraightThrough(chain=False), dense, 1),
        ("relaxed, temperature 1", Relaxed(1.0), dense, 1),
        ("relaxed, temperature 0.5", Relaxed(0.5), dense, 1),
        ("relaxed, temperature 0.1", Relaxed(0.1), dense, 1),
        ("flips, 8 a week", Flips(8), runs // 2, 1),
        ("score function, 8 runs", Score(), runs * 8, 8),
    ]
    rows = []
    for name, way, count, group in ways:
        estimator_rows, ms = sampled(way, problem, count, group)
        rows.append(estimator_row(name, estimator_rows, ms, reference, group))
    header = ["estimator", "bias, all weeks", "bias, first of these weeks", "bias, worst week",
              "sd of a run", "ms a run"]  # fmt: skip
    return table(header, rows)


def in_turns(works: list[Callable[[], object]], rounds: int = 15) -> list[np.ndarray]:
    """Milliseconds of each, (rounds,), in turns: a neighbour on the machine slows them all."""
    for work in works:
        work()
    times = np.empty((len(works), rounds))
    for k in range(rounds):
        for n, work in enumerate(works):
            began = time.perf_counter()
            work()
            times[n, k] = time.perf_counter() - began
    return list(times * 1e3)


def forward(begin: SpreadStart, steps: int, mode: Any) -> Callable[[], None]:
    """What runs the simulation from a start."""
    column = torch.from_numpy
    days = torch.zeros(steps), torch.zeros(steps)
    columns = SpreadColumns(
        column(begin.group), *(column(c.copy()) for c in (begin.compartment, begin.infected_time,
        begin.next_time)), *days,
    )  # fmt: skip
    inputs = SpreadInputs(np.array([R]), np.array(M))
    program = SpreadProgram(
        begin.spread, begin.network, columns, [0], lambda: inputs, mode=mode, threads=1
    )

    def run() -> None:
        for ours, theirs in zip(
            (columns.compartment, columns.infected_time, columns.next_time),
            (begin.compartment, begin.infected_time, begin.next_time),
            strict=True,
        ):
            ours.copy_(column(theirs))
        program.columns_changed()
        program.advance(0, steps)

    return run


def costs(begin: SpreadStart) -> str:
    rows = []
    million = start(1_000_000)
    for name, state, steps in (
        ("Astoria, 10% infectious, 11 steps", at_a_tenth(begin), 11),
        ("Astoria, 21 steps", begin, 21),
        ("Astoria, 100 steps", begin, 100),
        ("1,000,000 agents, 10% infectious, 11 steps", at_a_tenth(million), 11),
        ("1,000,000 agents, 21 steps", million, 21),
    ):
        problem = SpreadProblem(state, np.full(-(-steps // 7), R), M, steps)
        problem = replace(problem, infected_time=simulate(problem).infected_time)
        weights = np.ones(steps), np.ones(steps)
        works = [
            forward(state, steps, "pull"),
            forward(state, steps, "push"),
            partial(MessagePassing().vjp, problem, *weights),
        ]
        if state.network.num_agents < 1_000_000:
            works.append(partial(expected_curves, problem))
            works.append(partial(ExpectedModel().vjp, problem, *weights))
        dense, active, backward, *model = (t / steps for t in in_turns(works))
        ratio = np.median(backward / dense)
        rows.append(
            [
                name,
                *(f"{np.median(t):.3f} ({t.min():.3f})" for t in (dense, active, backward)),
                f"{ratio:.1f} ({backward.min() / dense.min():.1f})",
                *([f"{np.median(t):.3f}" for t in model] or ["not timed"] * 2),
            ]
        )
    header = ["", "dense forward", "active set", "backward", "backward / dense",
              "expected model, forward", "its gradient"]  # fmt: skip
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--seeds", type=int, default=400, help="runs of differences")
    parser.add_argument("--runs", type=int, default=200, help="runs of estimators")
    parser.add_argument("--steps", type=int, nargs="*", default=[21, 100])
    settings = parser.parse_args()
    torch.set_num_threads(1)
    begin = start()
    compact = begin.compact
    parts = [
        "## Cost\n\nMilliseconds a step, one thread; medians of 15 taken in turns (and the least). "
        "The target is a backward of at most three dense steps forward. Memory beside the network: "
        f"{sum(a.nbytes for a in compact) / begin.network.num_agents:.0f} bytes an agent for the "
        "layout, once, and "
        f"{(4 * (begin.structure.active_steps + 1) + 29) * len(compact.agent) / begin.network.num_agents:.0f} "
        "while stepping back, whatever the number of steps.\n\n" + costs(begin) + "\n\n" + FLOOR,
        LOOPS + short_loops_table(settings.runs),
        LOSSES + losses_table(settings.seeds),
    ]
    for steps in settings.steps:
        problem = SpreadProblem(begin, np.full(-(-steps // 7), R), M, steps)
        totals = Totals(problem, settings.seeds)
        wide, narrow = totals.differences(0.2), totals.differences(0.05)
        found, _ = sampled(MessagePassing(), problem, settings.runs)
        rows, sentence = agreement(wide, narrow, found, 0.15 if steps <= 21 else 0.25)
        parts.append(
            f"## {steps} steps: message passing against differences\n\n{settings.seeds} seeds for "
            f"the differences, {settings.runs} runs for the gradient. {sentence}\n\n{rows}"
        )
        parts.append(
            f"## {steps} steps: every estimator\n\nOf infections; bias against differences of "
            "±20%, over weeks above 5% of the largest. The sd of one run is the median over those "
            "weeks, in percent of the derivative.\n\n"
            + estimators(problem, wide, settings.runs if steps <= 21 else settings.runs // 2)
        )
    parts.append(WHY)
    write_page(settings.markdown, "Gradients", parts, "python benchmarks/gradients.py")


if __name__ == "__main__":
    main()
