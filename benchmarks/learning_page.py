"""The page of `learning.py`, made from its raw results alone.

Of each env and system only trainings count that had the settings of now and the newest code among
the results; of a seed that was trained twice with it, the last one.
"""

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from league.process import read
from learning_settings import ENVS, LEFT_OUT, SYSTEMS, TRAININGS
from tables import table

ENOUGH_SEEDS = 5
BUSY = 0.2  # of the machine's cores before a training: above, its seconds are upper bounds
PPO, ZOO_PPO, IMPALA, APEX = "PPO", "PPO, zoo settings", "IMPALA", "Ape-X"
SB3 = "SB3 PPO"
CURVE_AT = (100_000, 250_000, 500_000, 1_000_000)  # env steps, of envs without a target

Line = dict[str, Any]
BySeed = dict[int, Line]
Trainings = Mapping[tuple[str, str], BySeed]  # by env and system


def write(results: Path, markdown: Path) -> None:
    """Write the page. Raises: SystemExit without results."""
    lines = [line for line in read(results) if "env" in line]
    if not lines:
        raise SystemExit(f"{results}: expected results of trainings, found none; train first")
    trainings = newest(lines)
    counted = [line for seeds in trainings.values() for line in seeds.values()]
    parts = [
        "# Do the learners learn, and how soon?",
        _machine(counted),
        RULE,
        "\n\n".join(_env(env, trainings) for env in ENVS),
        "## What was wanted\n\n" + table(["", "result", ""], _wanted(trainings)),
        "## What is missing\n\n" + "\n".join(f"- {each}" for each in _missing(trainings)),
        "## Settings\n\n" + _settings(),
        "Made by `benchmarks/learning.py`, whose first lines say how to run it.",
    ]
    markdown.write_text("\n\n".join(parts) + "\n")


RULE = """**The rule**, the same for every system: greedy evaluation on episodes of fixed seeds \
whenever so many env steps have been learned from. Solved is a result that reaches the target \
twice in a row. Imports, the making of the learner and evaluation are outside the time; where \
actors act on their own, what they had collected before the clock began counts as long as what \
follows. The seeds were fixed before the settings were tuned, on seeds from 1001 up. Medians count \
an unsolved training as endless; in brackets the range over all seeds. Env steps a second are \
those learned from, over the time of training (SPS). Processor seconds are those of a training in \
a single process; they do not contain what others took of a busy machine. One thread of torch in \
every system. Machines of one name differ from day to day: compare seconds and SPS of the same \
days."""


def newest(lines: Sequence[Line]) -> Trainings:
    """The trainings that count, by env and system, then by seed."""
    found: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        now = TRAININGS.get(line["env"], {}).get(line["system"])
        if now is not None and dict(now) == line["settings"]:
            found[line["env"], line["system"]].append(line)
    return {
        key: {line["seed"]: line for line in same if line["version"] == same[-1]["version"]}
        for key, same in found.items()
    }


# --- what was measured ---------------------------------------------------------------------------


def _ended(seeds: BySeed) -> BySeed:
    """The trainings that were not refused."""
    return {seed: line for seed, line in seeds.items() if "refused" not in line}


def _to_solve(line: Line, clock: str) -> float:
    """Endless where it is not solved; not a number where the clock told nothing."""
    if line[clock] is None:
        return math.nan
    return float(line[clock]) if line["solved"] else math.inf


def _sps(line: Line, clock: str = "seconds") -> float:
    return math.nan if line[clock] is None else float(line["env_steps"] / line[clock])


def _machine(lines: Sequence[Line]) -> str:
    machines = Counter((m["processor"], m["cores"]) for m in _each(lines, "machine"))
    busy = sum(share > BUSY for share in _each(lines, "busy"))
    note = (
        f" **{busy} of {len(lines)} trainings began while others kept more than {BUSY:.0%} of "
        "their cores busy: their seconds are upper bounds, their SPS lower bounds, and a system of "
        "several processes had a larger share of the machine than one of a single process.**"
        if busy
        else ""
    )
    had = "; ".join(
        f"{processor}, {cores} core{'s' if cores > 1 else ''}: {count} trainings"
        for (processor, cores), count in sorted(machines.items())
    )
    return f"{had}.{note}"


def _each(lines: Sequence[Line], name: str) -> list[Any]:
    return [line[name] for line in lines]


def _env(env: str, trainings: Trainings) -> str:
    """The section of an env."""
    known = ENVS[env]
    head = (
        f"## {env.rpartition(':')[2]}\n\nTarget: {known.note}. "
        f"A training ends after {known.limit_s:,.0f} s at the latest."
    )
    if known.published:
        head += f" Published: {known.published}."
    rows = []
    for system in TRAININGS.get(env, {}):
        seeds = _ended(trainings.get((env, system), {}))
        if seeds:
            rows.append(_row(env, system, list(seeds.values())))
    if not rows:
        return f"{head} Not trained yet."
    if known.target is None:
        shown = table(
            ["system", "code", "days", "seeds", *(f"{at:,} steps" for at in CURVE_AT)], rows
        )
        return f"{head} Median result over the seeds, and its range.\n\n{shown}"
    titles = [
        "system",
        "code",
        "days",
        "solved",
        "env steps",
        "seconds",
        "processor seconds",
        "SPS",
    ]
    return f"{head}\n\n{table(titles, rows)}"


def _row(env: str, system: str, lines: list[Line]) -> list[str]:
    name = f"hotloop {system}" if SYSTEMS[system].is_hotloop else system
    head = [name, lines[0]["version"], _days(lines)]
    if ENVS[env].target is None:
        reached = [[_result_at(line, at) for line in lines] for at in CURVE_AT]
        return [*head, str(len(lines)), *(_spread(each, "{:,.0f}".format) for each in reached)]
    solved = sum(line["solved"] for line in lines)
    return [
        *head,
        f"{solved} of {len(lines)}",
        _spread([_to_solve(line, "env_steps") for line in lines], _thousands),
        _spread([_to_solve(line, "seconds") for line in lines], "{:.2f}".format),
        _spread([_to_solve(line, "cpu_seconds") for line in lines], "{:.2f}".format),
        _spread([_sps(line) for line in lines], _thousands),
    ]


def _days(lines: list[Line]) -> str:
    """The first and the last day of some trainings."""
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(line["at"])) for line in lines})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _result_at(line: Line, env_steps: int) -> float:
    """The last result up to so many env steps; not a number where training ended before."""
    if line["env_steps"] < env_steps:
        return math.nan
    return float([result for at, _, result in line["curve"] if at <= 1.01 * env_steps][-1])


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "none"

    def said(value: float) -> str:
        return "unsolved" if math.isinf(value) else text(value)

    return f"**{said(median(known))}** ({said(min(known))} to {said(max(known))})"


def _thousands(value: float) -> str:
    return f"{value / 1e3:.1f}k"


# --- what was wanted -----------------------------------------------------------------------------


def _wanted(trainings: Trainings) -> list[list[str]]:
    """By row: what was wanted, what was measured, and whether it is reached."""
    cartpole = "CartPole-v1"
    rows = [
        _compared(trainings, cartpole, PPO, _peers(cartpole), "seconds", 0.5, ENOUGH_SEEDS),
        _compared(trainings, cartpole, IMPALA, [SB3], "seconds", 0.25, 10),
        _compared(trainings, cartpole, APEX, [SB3], "seconds", 1.0, 10),
    ]
    for env in (cartpole, "LunarLander-v3"):
        rows.append(_compared(trainings, env, ZOO_PPO, _peers(env), "sps", 2.0, ENOUGH_SEEDS))
    return rows


def _peers(env: str) -> list[str]:
    return [system for system in TRAININGS[env] if not SYSTEMS[system].is_hotloop]


def _compared(
    trainings: Trainings,
    env: str,
    ours: str,
    peers: Sequence[str],
    what: str,
    wanted: float,
    seeds_wanted: int,
) -> list[str]:
    """A row: the median over seeds of our figure over that of the best peer.

    what: "seconds" to solve, of which a small share is wanted, or "sps", of which a large one.
    """
    faster = what == "sps"
    figure: Callable[[Line, str], float] = _sps if faster else _to_solve
    said = "SPS" if faster else "seconds to solve"
    title = (
        f"{env}: {said} of hotloop {ours}, {'at least' if faster else 'at most'} {wanted:g} times "
        f"those of {peers[0] if len(peers) == 1 else 'the best peer'}"
    )
    mine = _ended(trainings.get((env, ours), {}))
    measured = {peer: seeds for peer in peers if (seeds := _ended(trainings.get((env, peer), {})))}
    if not mine or not measured:
        return [title, "not measured", ""]
    medians = {
        peer: median(figure(line, "seconds") for line in seeds.values())
        for peer, seeds in measured.items()
    }
    best = (max if faster else min)(medians, key=lambda peer: medians[peer])
    ratios = _ratios(mine, measured[best], lambda line: figure(line, "seconds"))
    if not ratios:
        return [title, f"no seed to compare with {best}", ""]
    ratio = median(ratios)
    reached = ratio >= wanted if faster else ratio <= wanted
    text = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of {best}, {len(ratios)} seeds"
    judged = "reached" if reached else "missed"
    if len(ratios) < seeds_wanted:
        text += f"; {seeds_wanted} seeds were wanted"
        judged = "too few seeds"
    if in_processor_time := _ratios(mine, measured[best], lambda line: figure(line, "cpu_seconds")):
        text += f"; in processor time {median(in_processor_time):.2f}"
    return [title, text, judged]


def _ratios(ours: BySeed, theirs: BySeed, figure: Callable[[Line], float]) -> list[float]:
    """Of our figure over theirs, seed by seed; none where neither of the two says anything."""
    shared = sorted(ours.keys() & theirs.keys())
    pairs = [(figure(ours[seed]), figure(theirs[seed])) for seed in shared]
    return [
        our / their
        for our, their in pairs
        if not (math.isnan(our) or math.isnan(their) or (math.isinf(our) and math.isinf(their)))
    ]


# --- what is missing, and the settings -----------------------------------------------------------


def _missing(trainings: Trainings) -> list[str]:
    """What the tables do not hold, and why."""
    found = []
    for env, systems in TRAININGS.items():
        for system in systems:
            seeds = trainings.get((env, system), {})
            count = len(_ended(seeds))
            if count < ENOUGH_SEEDS:
                found.append(f"{env}, {system}: {count} of {ENOUGH_SEEDS} seeds.")
            found += [
                f"{env}, {system}, seed {seed}: {line['refused']}."
                for seed, line in sorted(seeds.items())
                if "refused" in line
            ]
    return found + [f"{system}: {why}" for system, why in LEFT_OUT.items()]


def _settings() -> str:
    """What was set, env by env; equal settings of several systems once."""
    rows = []
    for env, systems in TRAININGS.items():
        alike: dict[str, list[str]] = defaultdict(list)
        for system, settings in systems.items():
            alike[json.dumps(dict(settings))].append(system)
        for text, names in alike.items():
            said = ", ".join(f"{name} {value}" for name, value in json.loads(text).items())
            rows.append([env, ", ".join(names), said])
    return (
        "In hotloop's names; what is not named has hotloop's default. The peers have what the SB3 "
        "zoo publishes; normalised values are scaled rewards there.\n\n"
        + table(["env", "systems", "settings"], rows)
    )
