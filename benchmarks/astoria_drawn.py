"""Does the Astoria that is drawn from a seed have the epidemics of the original?

Each draw is a network, its exposed and a run of the covid model with its default parameters, 100
days, with rows read one way and both ways. The original stands beside it with its own network and
exposed drawn anew in the same way, by `draw_marked`. It is no part of this project: give
the folder of its population (AgentTorch's package 0.6.0, `agent_torch/populations/astoria`), or
leave it out, and the figures published below take its place. Raw results are appended to a file,
from which a run that was broken off goes on.

    python benchmarks/astoria_drawn.py --original FOLDER --markdown docs/benchmarks/astoria_drawn.md
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid import CovidSettings
from hotloop.populations import PopulationData
from hotloop.populations.ages import AGE_GROUPS
from hotloop.populations.degrees import AGENTS_BY_AGE, ALONE_BY_AGE, MEANS
from hotloop.populations.direction import is_acyclic
from hotloop.populations.readers import read_folder
from hotloop.populations.synthetic import (
    ASTORIA_AGENTS,
    GENERATOR_VERSION,
    MARKED,
    draw_marked,
    generate,
)
from hotloop.sim import Executor
from league.process import append, read
from tables import ratio_text, table, write_page

NAME = Path(__file__).name
RESULTS = Path("docs/benchmarks/astoria_drawn.jsonl")
DAYS = (21, 100)
WITHIN = {21: 0.10, 100: 0.25}  # what the ratio of the means may be off by
READINGS = ("one way", "both ways")
OUTGOING = ("no contact", "0", "1", "2 to 3", "4 to 6", "7 to 9", "10 to 19", "from 20")
Measured = dict[str, list[dict[str, Any]]]
COUNTED = 50  # networks whose figures are counted
DEGREES = (2, 4, 8, 16, 32)
DRAWN, ORIGINAL, OWN = "drawn", "original", "original, its own exposed"


@dataclass(frozen=True)
class Sample:
    """Infections up to a day over many draws."""

    mean: float
    deviation: float
    draws: int

    @property
    def half(self) -> float:
        """Half of the 95% interval of the mean."""
        return 1.96 * self.deviation / math.sqrt(self.draws)


# What this script measured on the original: mean, deviation, draws.
PUBLISHED = {
    (ORIGINAL, "one way", 21): Sample(480.9, 121.9, 400),
    (ORIGINAL, "one way", 100): Sample(5186.2, 2422.7, 400),
    (ORIGINAL, "both ways", 21): Sample(6229.2, 653.9, 400),
    (ORIGINAL, "both ways", 100): Sample(28099.6, 48.6, 400),
    (OWN, "one way", 21): Sample(480.4, 69.6, 400),
    (OWN, "one way", 100): Sample(4326.7, 1579.4, 400),
    (OWN, "both ways", 21): Sample(6683.2, 429.2, 400),
    (OWN, "both ways", 100): Sample(28098.9, 48.8, 400),
}

# Figures of the original's network, as `figures` counts them.
FIGURES = {
    "can be put in an order in which no row leads back": 1.0,
    "rows": 136378.0,
    "self-loops": 6.0,
    "agents without a contact": 6480.0,
    "agents with contacts, none of them incoming": 1.0,
    "agents with contacts, none of them outgoing": 8618.0,
    "largest out-degree": 73.0,
    "largest in-degree": 36.0,
    "correlation of out- and in-degree": 0.2932,
    "mean out-degree of a row's source": 12.7946,
    "mean out-degree of a row's target": 5.2198,
    "mean degree of a row's source": 18.0149,
    "mean degree of a row's target": 12.0461,
    "correlation of the degrees of a row's two agents": 0.094,
    "share of rows between agents of one age": 0.214,
    "mean out-degree of the exposed": 3.4444,
    "share of the exposed without a contact": 0.2444,
    "mean out-degree at degree 2": 0.2199,
    "mean out-degree at degree 4": 1.0038,
    "mean out-degree at degree 8": 3.2174,
    "mean out-degree at degree 16": 9.3163,
    "mean out-degree at degree 32": 23.187,
    "mean degree at age code 0": 8.1278,
    "mean degree at age code 1": 7.968,
    "mean degree at age code 2": 8.0472,
    "mean degree at age code 3": 7.9496,
    "mean degree at age code 4": 5.9982,
    "mean degree at age code 5": 3.9348,
}


def main() -> None:
    chosen = _options()
    version = f"generator {GENERATOR_VERSION}"
    done = {
        (line["arm"], line["draw"]) for line in read(chosen.results) if line["version"] == version
    }
    measured: Measured = defaultdict(list)
    towns = {} if chosen.original is None else _readings(read_folder(chosen.original))
    for draw in range(chosen.draws):
        for line in measure(draw, towns, done):
            append(chosen.results, version, line)
    for line in read(chosen.results):
        if line["version"] == version:
            measured[line["arm"]].append(line)
    write_page(chosen.markdown, "The Astoria that is drawn", page(measured), "benchmarks/" + NAME)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--original", type=Path, help="folder of the original's population")
    options.add_argument("--draws", type=int, default=400)
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, help="where the page goes")
    return options.parse_args()


def measure(
    draw: int, original: dict[str, PopulationData], done: set[tuple[str, int]]
) -> Iterator[dict[str, Any]]:
    """The lines of one draw that the results do not hold yet."""
    arms = (DRAWN, ORIGINAL, OWN) if original else (DRAWN,)
    wanted = [arm for arm in arms if (arm, draw) not in done]
    if not wanted:
        return
    drawn = generate(ASTORIA_AGENTS, draw)
    towns = {DRAWN: _readings(drawn), OWN: original}
    if original:
        one_way = original[READINGS[0]]
        assert one_way.edges is not None
        stages = draw_marked(one_way.edges, one_way.size, draw)
        towns[ORIGINAL] = {
            way: replace(town, columns={**town.columns, "stage": stages})
            for way, town in original.items()
        }
    for arm in wanted:
        found = {way: infections(town, draw) for way, town in towns[arm].items()}
        line: dict[str, Any] = {"arm": arm, "draw": draw, "infections": found}
        if (arm == DRAWN and draw < COUNTED) or (arm == OWN and draw == 0):
            line["figures"] = figures(towns[arm][READINGS[0]])
        yield line


def _readings(town: PopulationData) -> dict[str, PopulationData]:
    columns = {name: town.columns[name] for name in ("age", "stage")}
    town = PopulationData(town.name, columns, town.edges)
    return dict(zip(READINGS, (town, town.both_ways()), strict=True))


def infections(town: PopulationData, seed: int) -> list[int]:
    """Infections in the first 21 and in all 100 days of a run."""
    model = covid.model(CovidSettings(num_steps=DAYS[-1]))
    runner = Executor(model, town, seed=seed, device="cpu", threads=1).execute()
    daily = runner.state_trajectory[-1][-1]["environment"]["daily_infected"]
    return [int(daily[:days].sum()) for days in DAYS]


def figures(town: PopulationData) -> dict[str, float]:
    """The FIGURES of a network."""
    assert town.edges is not None
    loops = town.edges[:, 0] == town.edges[:, 1]
    source, target = town.edges[~loops].T
    outgoing = np.bincount(town.edges[:, 0], minlength=town.size)
    incoming = np.bincount(town.edges[:, 1], minlength=town.size)
    both, age, exposed = outgoing + incoming, town.columns["age"], town.columns["stage"] == 1
    named = {
        "can be put in an order in which no row leads back": is_acyclic(town.edges, town.size),
        "rows": len(town.edges),
        "self-loops": loops.sum(),
        "agents without a contact": (both == 0).sum(),
        "agents with contacts, none of them incoming": ((both > 0) & (incoming == 0)).sum(),
        "agents with contacts, none of them outgoing": ((both > 0) & (outgoing == 0)).sum(),
        "largest out-degree": outgoing.max(),
        "largest in-degree": incoming.max(),
        "correlation of out- and in-degree": np.corrcoef(outgoing, incoming)[0, 1],
        "mean out-degree of a row's source": outgoing[source].mean(),
        "mean out-degree of a row's target": outgoing[target].mean(),
        "mean degree of a row's source": both[source].mean(),
        "mean degree of a row's target": both[target].mean(),
        "correlation of the degrees of a row's two agents": np.corrcoef(both[source], both[target])[
            0, 1
        ],
        "share of rows between agents of one age": (age[source] == age[target]).mean(),
        "mean out-degree of the exposed": outgoing[exposed].mean(),
        "share of the exposed without a contact": (both[exposed] == 0).mean(),
    }
    for degree in DEGREES:
        named[f"mean out-degree at degree {degree}"] = outgoing[both == degree].mean()
    for code in range(6):
        named[f"mean degree at age code {code}"] = both[age == code].mean()
    return {name: round(float(value), 4) for name, value in named.items()}


def page(measured: Measured) -> list[str]:
    """The page's parts."""
    lines = measured[DRAWN]
    beside = len(measured[ORIGINAL])
    where = f"{beside} draws here" if beside else "published figures"
    header = ["read", "days", "original", "drawn", "ratio of the means", "wanted", ""]
    rows, own = (
        [row(measured, arm, way, days) for way in READINGS for days in DAYS]
        for arm in (ORIGINAL, OWN)
    )
    return [
        f"Infections of the covid model with its default parameters; {len(lines)} draws of "
        f"network, exposed and run. The original ({where}): its own network, 45 exposed drawn "
        "anew for each run, as in what is drawn. Means with 95% intervals, ± standard deviations "
        "over runs. Reached: the 95% interval of the ratio is within what is wanted. The "
        "original is the population `astoria` of AgentTorch's package 0.6.0; nothing of it is in "
        "this project but the counts below.",
        table(header, rows),
        "Beside the original with the 45 exposed of its own file, of which only the runs differ:",
        table(header[:5], [cells[:5] for cells in own]),
        "What the drawing uses: agents by age, those of them without a contact, and the mean of "
        "half a degree, which is its standard deviation too.",
        table(*used()),
        "And the exposed by their outgoing contacts:",
        table(["outgoing", *OUTGOING], [["exposed", *map(str, MARKED)]]),
        f"Figures of the original's network, read one way, and of {COUNTED} that are drawn: means "
        "with 95% ranges over draws. Rows, self-loops and who has no contact are set; the others "
        "follow from the table of ages and the order of the list.",
        table(["figure", "original", "drawn"], compared(measured)),
    ]


def row(measured: Measured, beside: str, way: str, days: int) -> list[str]:
    """The drawn beside an arm of the original."""
    original, drawn = (sample(measured, arm, way, days) for arm in (beside, DRAWN))
    ratio = drawn.mean / original.mean
    half = ratio * math.hypot(drawn.half / drawn.mean, original.half / original.mean)
    off = WITHIN[days]
    reached = 1 - off <= ratio - half and ratio + half <= 1 + off
    return [
        way,
        str(days),
        text(original),
        text(drawn),
        ratio_text((ratio, ratio - half, ratio + half)),
        f"{1 - off:.2f} to {1 + off:.2f}",
        "reached" if reached else "missed" if abs(ratio - 1) > off else "undecided",
    ]


def sample(measured: Measured, arm: str, way: str, days: int) -> Sample:
    """What was measured, else what is published."""
    lines = measured[arm]
    if not lines:
        return PUBLISHED[arm, way, days]
    values = np.array([line["infections"][way][DAYS.index(days)] for line in lines])
    return Sample(float(values.mean()), float(values.std(ddof=1)), len(values))


def text(sample: Sample) -> str:
    low, high = sample.mean - sample.half, sample.mean + sample.half
    return f"{sample.mean:,.0f} [{low:,.0f}, {high:,.0f}] ± {sample.deviation:,.0f}"


def used() -> tuple[list[str], list[list[str]]]:
    """Header and rows of what the drawing uses."""
    columns = zip(AGE_GROUPS, AGENTS_BY_AGE, ALONE_BY_AGE, MEANS, strict=True)
    rows = [
        [str(code), name, f"{agents:,}", f"{alone:,}", str(mean)]
        for code, (name, agents, alone, mean) in enumerate(columns)
    ]
    return ["age code", "age", "agents", "without a contact", "mean half-degree"], rows


def compared(measured: Measured) -> list[list[str]]:
    """Rows of figures: original, drawn."""
    of_draws = [line["figures"] for line in measured[DRAWN] if "figures" in line]
    found = [line["figures"] for line in measured[OWN] if "figures" in line]
    original = found[0] if found else FIGURES
    rows = []
    for name, value in original.items():
        values = np.array([drawn[name] for drawn in of_draws])
        low, high = np.percentile(values, [2.5, 97.5])
        spread = f" [{short(low)}, {short(high)}]" if low < high else ""
        rows.append([name, short(value), short(values.mean()) + spread])
    return rows


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


if __name__ == "__main__":
    main()
