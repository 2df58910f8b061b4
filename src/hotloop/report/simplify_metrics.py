"""What the journal notes of an experiment: the rate, the ceilings, what each stage would gain.

Apart from the report: later tries are judged by these.
"""

from hotloop.loop.figures import Figure, Interval, Unknown
from hotloop.loop.run import Run
from hotloop.repeat.entries import CEILING, GAIN, OVERLAP, RATE, SECONDS, Metric, gain_at, known
from hotloop.simplify.ceilings import Ladder
from hotloop.simplify.verdict import Verdict


def simplify_metrics(verdict: Verdict, run: Run) -> dict[str, Metric]:
    """The metrics of an experiment; without gains and ceilings where the verdict is refused."""
    unit = f"{verdict.unit}/s"
    found: dict[str, tuple[Figure, str]] = {RATE: (_rate(verdict, verdict.baseline_ns), unit)}
    if isinstance(run.facts.get("seconds"), float):
        found[SECONDS] = (run.facts["seconds"], "s")
    if verdict.refused is None:
        if isinstance(verdict.ladder, Ladder):
            found |= _ceilings(verdict, verdict.ladder, unit)
        found |= {f"{GAIN}{' + '.join(pair.stages)}": (pair.gain, "") for pair in verdict.pairs}
        found |= {f"{GAIN}{group.name}": (group.gain, "") for group in verdict.groups}
        for row in verdict.rows:
            found[GAIN + row.name] = (row.gain, "")
            found |= {gain_at(k, row.name): (gain, "") for k, gain in row.faster.items()}
    return known(found)


def _ceilings(verdict: Verdict, ladder: Ladder, unit: str) -> dict[str, tuple[Figure, str]]:
    """The rate of each rung; and the gain of perfect overlap, from its worst to its best case."""
    now, *rungs = ladder.rungs
    found: dict[str, tuple[Figure, str]] = {
        CEILING + rung.name: (_rate(verdict, rung.ns), unit) for rung in rungs
    }
    overlap = rungs[0].ns
    if isinstance(now.ns, Interval) and isinstance(overlap, Interval) and now.ns.low > 0:
        gain = Interval(
            1 - overlap.value / now.ns.value,
            1 - overlap.high / now.ns.low,
            1 - overlap.low / now.ns.high,
        )
        found[OVERLAP] = (gain, "")
    return found


def _rate(verdict: Verdict, ns: Interval | Unknown) -> Figure:
    """Units per second of iterations that take so long."""
    if isinstance(ns, Unknown):
        return ns
    if ns.value <= 0:
        return Unknown("no limit")
    ends = [
        verdict.units_per_iteration / end * 1e9 if end > 0 else float("inf")
        for end in (ns.high, ns.low)
    ]
    return Interval(verdict.units_per_iteration / ns.value * 1e9, *ends)
