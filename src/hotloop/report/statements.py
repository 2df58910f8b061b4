"""What every report says about a run, once: figures with their meaning, and the answer in words.

A figure is a name, a number, how it is written and a remark. A sentence is a list of plain words,
names and amounts. The terminal and the page each dress both in their own way, and neither has
words of its own for the same thing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Figure, Percentiles, StageTime, Summary, Unknown
from hotloop.loop.run import Run
from hotloop.report.numbers import (
    Form,
    bytes_,
    duration,
    interval,
    number,
    percent,
    seconds,
)
from hotloop.simplify.ceilings import Ladder, Rung
from hotloop.simplify.rows import Pair
from hotloop.simplify.verdict import Verdict

_COST = {
    "waiting": "the loop waits for it",
    "contention": "it takes the others’ cores or lock: more workers would make it worse",
    "own work": "it is its own work",
    "unknown": "how it costs is not known",
}


@dataclass(frozen=True)
class NamedFigure:
    """A number with its name, the form that it is written in, and what is to be said about it."""

    name: str
    value: Figure
    form: Form
    note: str = ""


@dataclass(frozen=True)
class Name:
    """The name of a stage, inside a sentence."""

    text: str


@dataclass(frozen=True)
class Amount:
    """A number inside a sentence."""

    value: Figure
    form: Form


Sentence = Sequence[str | Name | Amount]  # without a capital or a full stop


@dataclass(frozen=True)
class State:
    """Where a loop stands, and the ceilings above it.

    base_ns: an iteration in the rounds in which every arm of the ladder ran. How many times faster
    a ceiling is, is within those rounds, so it is measured from there and not from now_ns.
    """

    now_ns: Interval
    base_ns: Interval
    ceilings: Sequence[Rung]


@dataclass(frozen=True)
class Compared:
    """One of several benchmarks, and how many times the rate of the first it has."""

    target: str
    date: str
    rate: Figure
    unit: str
    against: Interval | Unknown | None  # None: it is the first


def benchmark_figures(summary: Summary, run: Run) -> list[NamedFigure]:
    """All figures of a benchmark: rates, phases, use of the machine, arithmetic, cost."""
    unit, price = summary.unit, summary.price_per_hour
    rates = [
        NamedFigure(f"{unit}/s", summary.units_per_s, number),
        NamedFigure("batches/s", summary.batches_per_s, number),
    ]
    if unit != "iterations":
        rates.append(NamedFigure("iterations/s", summary.iterations_per_s, number))
    return [
        *rates,
        NamedFigure("iteration", summary.ms_per_iteration, duration.scaled(1e6), "the mean"),
        *_percentile_figures(
            "iteration", summary.iteration_percentiles, "half of the iterations are slower"
        ),
        *(
            _percentile_figures(
                "per unit",
                summary.unit_latency,
                f"an iteration’s time over its {unit}; half of them are slower",
            )
            if unit != "iterations"
            else []
        ),
        NamedFigure("start-up", summary.start_up_s, seconds, "before the first iteration"),
        NamedFigure(
            "first batch",
            summary.first_batch_s,
            seconds,
            "from the start to the first one’s end",
        ),
        NamedFigure("warm-up", summary.warm_up_s, seconds, "apart from the steady state"),
        _whole(summary, run),
        NamedFigure("CPU", summary.cpu_share, percent, "of the cores this process tree may use"),
        NamedFigure("peak memory", summary.memory_bytes, bytes_, "resident, of the process tree"),
        NamedFigure(
            "GPU duty cycle",
            summary.gpu_duty,
            percent,
            "time with a kernel awake, not efficiency",
        ),
        NamedFigure("GPU memory", summary.gpu_memory_bytes, bytes_),
        NamedFigure("GPU SM activity", summary.gpu_sm, percent),
        NamedFigure("GPU tensor activity", summary.gpu_tensor, percent),
        NamedFigure("FLOP/s", summary.flops_per_s, number, _coverage(summary)),
        NamedFigure("MFU", summary.mfu, percent, _peak(run)),
        NamedFigure(
            f"cost per million {unit}",
            summary.cost_per_million,
            number,
            f"at {price:g} an hour" if price else "",
        ),
    ]


def _percentile_figures(name: str, found: Percentiles, half: str) -> list[NamedFigure]:
    form = duration.scaled(1e6)
    return [
        NamedFigure(f"{name} p50", found.p50, form, half),
        NamedFigure(f"{name} p95", found.p95, form, "1 in 20 is slower"),
        NamedFigure(f"{name} p99", found.p99, form, "1 in 100 is slower"),
    ]


def _whole(summary: Summary, run: Run) -> NamedFigure:
    """The wall time of everything: of the command's process, or of a call from Python."""
    if run.facts.get("whole_process", True):
        until = "from its start to the end of the measurement"
        return NamedFigure("whole process", summary.wall_s, seconds, until)
    return NamedFigure("whole call", summary.wall_s, seconds, "with its warm-up")


def names_by_reason(figures: Iterable[NamedFigure]) -> dict[str, list[str]]:
    """Why figures are unknown, and which ones for that reason; known ones are left out."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        if isinstance(figure.value, Unknown):
            found.setdefault(figure.value.why, []).append(figure.name)
    return found


def measured_for(summary: Summary) -> str:
    """What the rates of a benchmark rest on."""
    return (
        f"{summary.iterations} steady iterations in {summary.seconds:.1f} s; intervals cover 95%."
    )


def by_share(stages: Sequence[StageTime]) -> list[StageTime]:
    """Stages in the order of a table: the largest first, those inside others at the end."""
    return sorted(stages, key=lambda stage: (stage.inside is not None, -stage.share.value))


def side_by_side(stages: Sequence[StageTime]) -> list[str]:
    """The stages whose calls overlap: their share counts the time once, their calls add up."""
    return [
        f"{stage.name}: {stage.at_once:.2g} calls run side by side on average; added up, they take "
        f"{duration(stage.summed_ns_per_iteration.value)} an iteration"
        for stage in by_share(stages)
        if stage.at_once > 1.01
    ]


def compared(benchmarks: Sequence[tuple[Run, Summary]]) -> list[Compared]:
    """Benchmarks side by side, each against the first."""
    first = benchmarks[0][1]
    return [
        Compared(
            target=run.target,
            date=str(run.host.get("date", "")),
            rate=summary.units_per_s,
            unit=summary.unit,
            against=_against(first, summary) if k else None,
        )
        for k, (run, summary) in enumerate(benchmarks)
    ]


def rungs(verdict: Verdict) -> list[Rung]:
    """The ladder from now to the roof; where there is none, now and one rung that says why."""
    if isinstance(verdict.ladder, Ladder):
        return verdict.ladder.rungs
    return [
        Rung("now", verdict.baseline_ns, "the loop as it is", ""),
        Rung("ceilings", verdict.ladder, "", ""),
    ]


def state(verdict: Verdict) -> State | Unknown:
    """Where the loop stands, or why that is not known."""
    now = verdict.baseline_ns
    if isinstance(now, Unknown):
        return now
    first, *ceilings = rungs(verdict)
    return State(now, first.ns if isinstance(first.ns, Interval) else now, ceilings)


def fix(verdict: Verdict) -> Sentence:
    """What to fix next, what it is worth and how it costs."""
    found = verdict.fix
    if found is None:
        return _nothing(verdict)
    if isinstance(found, Pair):
        one, other = found.stages
        words: list[str | Name | Amount] = [Name(one), " and ", Name(other), " together: up to "]
        return [*words, Amount(found.gain, percent), " of the time; neither gains alone"]
    words = [Name(found.name), ": up to ", Amount(found.gain, percent), " of the time; "]
    words.append(_COST[found.cost])
    for k, gain in found.faster.items():
        if isinstance(gain, Interval):
            words += [f"; {_times_as_fast(k)} saves ", Amount(gain, percent)]
            break
    if verdict.ties:
        words += [". A tie: ", *_listed(verdict.ties), " gain", "s"[len(verdict.ties) > 1 :]]
        words.append(" as much, as far as can be told")
    if verdict.contention:
        words.append(". Contention, not modelled: try before you add workers")
    return words


def unknown(verdict: Verdict) -> Sentence | None:
    """Which stages nothing is known of, and what would make it known; None if there is none."""
    rows = {row.name: row for row in verdict.rows}
    if not verdict.unknown or (verdict.fix is None and not _replaced(verdict)):
        return None  # there the whole answer is about them
    reasons = {rows[name].not_replaced or "too few rounds" for name in verdict.unknown}
    return [
        *_listed(verdict.unknown),
        f": not replaced, so their gain is unknown ({_any(reasons)})",
    ]


def _nothing(verdict: Verdict) -> Sentence:
    """What is said where no stage is named: that nothing gains, or that it is not known."""
    if _replaced(verdict):
        words: list[str | Name | Amount] = [
            "nothing: no stage alone, and no pair tried, gains what is worth it"
        ]
        unclear = [row.name for row in verdict.rows if row.verdict == "unclear"]
        if unclear:
            words += ["; not clear yet: ", *_listed(unclear), " (a larger --budget tells)"]
        return words
    reasons = {row.not_replaced or "too few rounds" for row in verdict.rows}
    if not reasons:
        return ["not known: no stage was seen in the time that there was"]
    return [
        "not known: no stage could be replaced, so no gain was measured. ",
        f'{_any(reasons).capitalize()}. Declare effect="pure" or, with the loop’s state, ',
        'effect="stateful" for a stage to make it known',
    ]


def _replaced(verdict: Verdict) -> bool:
    return any(isinstance(row.gain, Interval) for row in verdict.rows)


def _any(reasons: Iterable[str]) -> str:
    first, *more = sorted(reasons)
    return first + (f"; and {len(more)} other reasons, in the table" if more else "")


def _listed(names: Sequence[str]) -> list[str | Name | Amount]:
    words: list[str | Name | Amount] = []
    for name in names:
        words += [", ", Name(name)] if words else [Name(name)]
    return words


def _times_as_fast(k: float) -> str:
    return "twice as fast" if k == 2 else f"{k:g} times as fast"


def leave(verdict: Verdict) -> Sentence:
    """What to leave alone, and the most that it could be worth."""
    if not verdict.leave:
        return ["nothing is known to be safe to ignore"]
    rows = {row.name: row for row in verdict.rows}
    most = max(gain.high for name in verdict.leave if isinstance(gain := rows[name].gain, Interval))
    words = _listed(verdict.leave)
    each = "each, " if len(verdict.leave) > 1 else ""
    return [*words, f": under {percent(max(most, 0.0))} {each}even if free"]


def pairs(verdict: Verdict) -> list[str]:
    """What the pairs that were tried gain."""
    return [
        f"{' + '.join(pair.stages)} together: {interval(pair.gain, percent)}"
        for pair in verdict.pairs
    ]


def model(ladder: Ladder) -> str:
    """Whether a pipeline of the stages' ceilings explains the loop as it is."""
    if isinstance(ladder.model, Unknown):
        return f"no pipeline model: {ladder.model.why}"
    predicted = interval(ladder.model.predicted_ns, duration)
    if ladder.model.holds:
        return f"a pipeline of the stages’ ceilings reproduces the baseline: {predicted}"
    return f"contention, not modelled: a pipeline of the stages’ ceilings would take {predicted}"


def restlessness(verdict: Verdict) -> str:
    """How long was measured, and what the machine's noise alone looked like."""
    same = "; ".join(interval(gain, percent) for gain in verdict.aa.gains.values())
    return (
        f"{verdict.rounds} rounds in {verdict.seconds:.1f} s, {verdict.blocks}; "
        f"arms that are the same differ by {same or 'unknown: none ran often enough'}"
    )


def train_warnings(run: Run) -> list[str]:
    """What to know before a training run is believed."""
    return [] if run.complete else ["the run was interrupted; this is what it had learned"]


def _coverage(summary: Summary) -> str:
    if isinstance(summary.flops_coverage, Unknown | Interval):
        return ""
    left_out = ", ".join(summary.uncounted[:3])
    return f"from {percent(summary.flops_coverage)} of torch’s operations" + (
        f"; without a formula: {left_out} …" if left_out else ""
    )


def _peak(run: Run) -> str:
    peaks = run.facts.get("peaks")
    return f"of a measured {number(peaks['flops_per_s'])}; {peaks['how']}" if peaks else ""


def _against(first: Summary, other: Summary) -> Interval | Unknown:
    if other.unit != first.unit:
        return Unknown("another unit")
    then, now = first.units_per_s, other.units_per_s
    if not isinstance(then, Interval) or not isinstance(now, Interval):
        return Unknown("a rate is missing")
    # Two separate runs: the ends of the ratio are those of the worst and the best case.
    return Interval(now.value / then.value, now.low / then.high, now.high / then.low)
