"""One self-contained page about saved runs: the answer first, then the charts, then the figures.

What a run says is computed where its verb lives; here it is put into sentences, tables and the
charts of `hotloop.report.svg`, and the template lays it out. The page loads nothing from anywhere
and is the same, byte for byte, whenever it is drawn again from the same runs.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Figure, StageTime, Summary, Unknown, summarize
from hotloop.benchmark.timeline import KEPT_EVENTS, by_lane, from_array
from hotloop.errors import RunError
from hotloop.loop.arm import GPU_LANE, Event
from hotloop.loop.host import describe
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
from hotloop.report.svg import (
    COLOURS,
    NARROW,
    WIDE,
    Curve,
    Lane,
    Span,
    ladder_waterfall,
    learning_curve,
    rate,
    timeline,
    times,
    tornado,
)
from hotloop.simplify.ceilings import Ladder, PipelineModel, Rung
from hotloop.simplify.verdict import Pair, StageVerdict, Verdict, judge_run

MOST_LANES = 12

_VERBS = ("simplify", "benchmark", "train")  # the order of the story
_COST = {
    "waiting": "the loop waits for it",
    "contention": "it takes the others’ cores or lock: more workers would make it worse",
    "own work": "it is its own work",
    "unknown": "how it costs is not known",
}


def write_html(runs: Sequence[Run], path: Path) -> Path:
    """Write one page about all these runs to `path`; returns where.

    Raises: RunError if it cannot be written (what stood there before stays as it was), or if a
    run is of a kind that has no report.
    """
    page = render(runs)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(page, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise RunError(
            f"the report could not be written as {path}: {error.strerror or error}. Free some "
            "room or name another place with --html"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()
    return path


def render(runs: Sequence[Run]) -> str:
    """The page as text."""
    for run in runs:
        if run.verb not in _VERBS:
            raise RunError(f"a {run.verb} run of {run.target} has no report")
    if not runs:
        raise RunError("there is no run to report; name one or more")
    # A stable sort: runs of one verb stay in the order in which they were named.
    ordered = sorted(runs, key=lambda run: _VERBS.index(run.verb))
    colours = _colours(ordered)
    sections = [_section(f"r{k}", run, ordered, colours) for k, run in enumerate(ordered)]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(
        title=", ".join(dict.fromkeys(run.target for run in ordered)),
        machines=list(dict.fromkeys(describe(run.host) for run in ordered)),
        many=len({run.target for run in ordered}) > 1,
        sections=sections,
        compared=_compared(ordered),
    )


@dataclass(frozen=True)
class Tile:
    """One large number at the top: what it is, its value with the interval, and a remark."""

    label: str
    value: Markup
    note: str = ""


@dataclass(frozen=True)
class Figures:
    """A chart in its two widths, what it shows, and what is to be said below it."""

    title: str
    lead: str
    charts: list[Markup]
    legend: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TableView:
    """A table; `footnotes` are the reasons of what is unknown in it, numbered from 1."""

    title: str
    head: list[str]
    rows: list[list[Markup | str]]
    footnotes: list[str]
    notes: list[str] = field(default_factory=list)
    refused: bool = False


@dataclass(frozen=True)
class Section:
    """All that the page says about one run."""

    key: str
    run: Run
    heading: str
    refused: str | None
    answer: list[tuple[str, Markup]]  # a word ("fix") and its sentence
    tiles: list[Tile]
    figures: list[Figures]
    tables: list[TableView]
    warnings: list[str]
    settings: list[tuple[str, str]]


class _Footnotes:
    """Numbers the reasons of one table; the same reason has one number."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cell(self, of: Figure, form: Form = number) -> Markup:
        if not isinstance(of, Unknown):
            return measure(of, form)
        if of.why not in self.reasons:
            self.reasons.append(of.why)
        mark = self.reasons.index(of.why) + 1
        return Markup('<span class="unknown">unknown<sup>{}</sup></span>').format(mark)


def measure(of: Figure, form: Form = number) -> Markup:
    """A figure with its interval set apart; an unknown one says so, with the reason."""
    if isinstance(of, Unknown):
        return Markup('<span class="unknown">unknown: {}</span>').format(of.why)
    if isinstance(of, Interval):
        return _apart(form(of.value) if of.low == of.high else interval(of, form))
    return _apart(form(of))


def _apart(text: str) -> Markup:
    """'12.3k [12.1, 12.5]' with the bracket as a span of its own."""
    value, bracket, ends = text.partition(" [")
    shown = Markup('<span class="n">{}</span>').format(value)
    if not bracket:
        return shown
    return Markup('{} <span class="iv">[{}</span>').format(shown, ends)


def _colours(runs: Sequence[Run]) -> dict[str, int]:
    """A colour number for every stage of every run: one name, one colour, on the whole page."""
    names = [stage["name"] for run in runs for stage in run.facts.get("stages") or []]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}


def _section(key: str, run: Run, runs: Sequence[Run], colours: dict[str, int]) -> Section:
    if run.verb == "simplify":
        # The benchmark's timeline shows the loop with nothing recorded beside it.
        better = any(r.verb == "benchmark" and r.target == run.target for r in runs)
        return _simplify_section(key, run, colours, with_timeline=not better)
    if run.verb == "benchmark":
        return _benchmark_section(key, run, colours)
    return _train_section(key, run)


def _settings(run: Run) -> list[tuple[str, str]]:
    return [
        ("command", str(run.host.get("command", ""))),
        ("date", str(run.host.get("date", ""))),
        ("machine", describe(run.host)),
        *((name, str(value)) for name, value in run.settings.items()),
    ]


# --- simplify --------------------------------------------------------------------------------


def _simplify_section(
    key: str, run: Run, colours: dict[str, int], *, with_timeline: bool
) -> Section:
    verdict, _ = judge_run(run)
    figures = [_ladder_figure(key, verdict)]
    if verdict.rows:
        figures.append(_tornado_figure(key, run, verdict, colours))
    if with_timeline:
        figures += _timeline_figure(key, run, colours)
    return Section(
        key=key,
        run=run,
        heading="What holds it back",
        refused=verdict.refused,
        answer=_answer(verdict),
        tiles=_ladder_tiles(verdict),
        figures=figures,
        tables=_verdict_tables(verdict, colours) if verdict.rows else [],
        warnings=verdict.warnings,
        settings=_settings(run),
    )


def _answer(verdict: Verdict) -> list[tuple[str, Markup]]:
    if verdict.refused is not None:
        return []
    return [("fix", _fix(verdict)), ("leave", _leave(verdict))]


def _fix(verdict: Verdict) -> Markup:
    fix = verdict.fix
    if fix is None:
        return Markup("nothing: no stage alone, and no pair tried, gains what is worth it.")
    if isinstance(fix, Pair):
        return Markup(
            "<strong>{}</strong> and <strong>{}</strong> together: up to {} of the time; neither "
            "gains alone."
        ).format(*fix.stages, measure(fix.gain, percent))
    sentence = Markup("<strong>{}</strong>: up to {} of the time; {}").format(
        fix.name, measure(fix.gain, percent), _COST[fix.cost]
    )
    if isinstance(fix.gain_if_faster, Interval):
        sentence += Markup("; twice as fast saves {}").format(measure(fix.gain_if_faster, percent))
    if verdict.contention:
        sentence += Markup(". Contention, not modelled: try before you add workers")
    return sentence + Markup(".")


def _leave(verdict: Verdict) -> Markup:
    if not verdict.leave:
        return Markup("nothing is known to be safe to ignore.")
    rows = {row.name: row for row in verdict.rows}
    most = max(gain.high for name in verdict.leave if isinstance(gain := rows[name].gain, Interval))
    names = Markup(", ").join(Markup("<strong>{}</strong>").format(n) for n in verdict.leave)
    each = "each, " if len(verdict.leave) > 1 else ""
    return Markup("{}: under {} {}even if free.").format(names, percent(max(most, 0.0)), each)


def _rungs(verdict: Verdict) -> list[Rung]:
    """The rungs to draw, also where there is no ladder."""
    if isinstance(verdict.ladder, Ladder):
        return verdict.ladder.rungs
    return [
        Rung("now", verdict.baseline_ns, "the loop as it is", ""),
        Rung("ceilings", verdict.ladder, "", ""),
    ]


def _ladder_tiles(verdict: Verdict) -> list[Tile]:
    now, rungs = verdict.baseline_ns, _rungs(verdict)
    if isinstance(now, Unknown):
        return [Tile("now", measure(now))]
    tiles = [
        Tile(
            "now",
            _apart(rate(verdict.units_per_iteration, now)),
            f"{verdict.unit}/s; {interval(now, duration)} an iteration",
        )
    ]
    # Factors are within the rounds of the ladder, as in its chart.
    base = rungs[0].ns if isinstance(rungs[0].ns, Interval) else now
    for rung in rungs[1:]:
        if isinstance(rung.ns, Unknown):
            tiles.append(
                Tile(rung.name, Markup('<span class="unknown">unknown</span>'), rung.ns.why)
            )
        else:
            tiles.append(Tile(rung.name, _apart(times(base, rung.ns)), f"set by {rung.set_by}"))
    return tiles


def _ladder_figure(key: str, verdict: Verdict) -> Figures:
    notes = []
    if isinstance(verdict.ladder, Ladder):
        notes.append(
            "Bars are times of an iteration; the dashed part is what the rung saves. A factor’s "
            "interval runs from its worst to its best case. All rungs are from the rounds in which "
            "every arm of the ladder ran, so now may differ a little from the rate above."
        )
        model = verdict.ladder.model
        if isinstance(model, PipelineModel):
            predicted = interval(model.predicted_ns, duration)
            notes.append(
                f"A pipeline of the stages’ ceilings reproduces the baseline: {predicted}."
                if model.holds
                else "Contention, not modelled: a pipeline of the stages’ ceilings would take "
                f"{predicted}."
            )
        else:
            notes.append(f"No pipeline model: {model.why}.")
    else:
        notes.append(f"No ceilings: {verdict.ladder.why}.")
    return Figures(
        "How fast it could be",
        "The ladder from now to the machine’s roof, and what closes each gap.",
        [
            ladder_waterfall(
                _rungs(verdict),
                verdict.unit,
                verdict.units_per_iteration,
                width=width,
                name=f"{key}-ladder-{width}",
                refused=verdict.refused is not None,
            )
            for width in (WIDE, NARROW)
        ],
        notes=notes,
    )


def _tornado_figure(key: str, run: Run, verdict: Verdict, colours: dict[str, int]) -> Figures:
    worth = float(run.settings["worth"])
    pairs = [
        f"{' + '.join(pair.stages)} together: {interval(pair.gain, percent)}."
        for pair in verdict.pairs
    ]
    same = "; ".join(interval(gain, percent) for gain in verdict.aa.gains.values())
    return Figures(
        "Share of time beside gain",
        "Left, the part of an iteration that a stage takes; right, what the loop gained when the "
        "stage cost nothing. One scale for both.",
        [
            tornado(
                verdict.rows,
                colours,
                worth=worth,
                width=width,
                name=f"{key}-tornado-{width}",
                refused=verdict.refused is not None,
            )
            for width in (WIDE, NARROW)
        ],
        notes=[
            f"Whiskers cover 95%; the dashed line is the smallest gain that counts, "
            f"{percent(worth)}.",
            *pairs,
            f"{verdict.rounds} rounds in {verdict.seconds:.1f} s; arms that are the same differ "
            f"by {same or 'unknown: none ran often enough'}.",
        ],
    )


def _verdict_tables(verdict: Verdict, colours: dict[str, int]) -> list[TableView]:
    refused = verdict.refused is not None
    gains, costs = _Footnotes(), _Footnotes()
    first: list[list[Markup | str]] = []
    second: list[list[Markup | str]] = []
    for row in verdict.rows:
        name = _stage_name(row, colours)
        first.append(
            [
                name,
                measure(row.share, percent),
                gains.cell(row.gain, percent),
                gains.cell(row.gain_if_faster, percent),
                gains.cell(row.ceiling_ns, duration),
                gains.cell(Unknown("no test ran") if row.p_adjusted is None else row.p_adjusted),
                "no verdict" if refused else row.verdict,
            ]
        )
        slack = row.slack
        second.append(
            [
                name,
                measure(row.ns_per_iteration, duration),
                measure(row.calls_per_iteration),
                costs.cell(row.latency_ns, duration),
                costs.cell(row.interference_ns, duration),
                costs.cell(slack if isinstance(slack, Unknown) else slack.slack_ns, duration),
                row.cost,
            ]
        )
    return [
        TableView(
            "What each stage is worth",
            ["stage", "share", "gain if free", "twice as fast", "ceiling", "p", "verdict"],
            first,
            gains.reasons,
            ["p: adjusted for the number of comparisons (Holm)."],
            refused,
        ),
        TableView(
            "How each stage costs",
            ["stage", "an iteration", "calls", "waited for", "taken from others", "slack", "cost"],
            second,
            costs.reasons,
            ["Slack: how long the stage can be held up in an iteration before the loop is slower."],
            refused,
        ),
    ]


def _stage_name(row: StageVerdict | StageTime, colours: dict[str, int]) -> Markup:
    inside = (
        Markup(' <span class="inside">in {}</span>').format(row.inside) if row.inside else Markup()
    )
    return Markup('<span class="swatch s{}"></span>{}{}').format(
        colours[row.name] % COLOURS, row.name, inside
    )


# --- benchmark -------------------------------------------------------------------------------


def _benchmark_section(key: str, run: Run, colours: dict[str, int]) -> Section:
    summary = summarize(run)
    per_iteration = (
        interval(summary.ms_per_iteration, duration.scaled(1e6))
        if isinstance(summary.ms_per_iteration, Interval)
        else ""
    )
    return Section(
        key=key,
        run=run,
        heading="How fast it is",
        refused=None,
        answer=[],
        tiles=[
            Tile(
                f"{summary.unit} per second",
                measure(summary.units_per_s),
                f"{per_iteration} an iteration" if per_iteration else "",
            ),
            Tile("of the cores", measure(summary.cpu_share, percent), "in use by the process tree"),
            Tile("peak memory", measure(summary.memory_bytes, bytes_), "resident"),
        ],
        figures=_timeline_figure(key, run, colours),
        tables=[
            *([_stage_table(summary, colours)] if summary.stages else []),
            _figure_table(summary, run),
        ],
        warnings=summary.warnings,
        settings=_settings(run),
    )


def _figure_table(summary: Summary, run: Run) -> TableView:
    peaks = run.facts.get("peaks")
    price = summary.price_per_hour
    rows: list[tuple[str, Figure, Form, str]] = [
        (f"{summary.unit}/s", summary.units_per_s, number, ""),
        ("batches/s", summary.batches_per_s, number, ""),
        ("iterations/s", summary.iterations_per_s, number, ""),
        ("iteration", summary.ms_per_iteration, duration.scaled(1e6), ""),
        ("start-up", summary.start_up_s, seconds, "before the first iteration"),
        ("first batch", summary.first_batch_s, seconds, "from the start to the first one’s end"),
        ("warm-up", summary.warm_up_s, seconds, "apart from the steady state"),
        ("whole process", summary.wall_s, seconds, "from its start to the end of the measurement"),
        ("CPU", summary.cpu_share, percent, "of the cores this process tree may use"),
        ("peak memory", summary.memory_bytes, bytes_, "resident, of the process tree"),
        ("GPU duty cycle", summary.gpu_duty, percent, "time with a kernel awake, not efficiency"),
        ("GPU memory", summary.gpu_memory_bytes, bytes_, ""),
        ("GPU SM activity", summary.gpu_sm, percent, ""),
        ("GPU tensor activity", summary.gpu_tensor, percent, ""),
        ("FLOP/s", summary.flops_per_s, number, _coverage(summary)),
        (
            "MFU",
            summary.mfu,
            percent,
            f"of a measured {number(peaks['flops_per_s'])}; {peaks['how']}" if peaks else "",
        ),
        (
            f"cost per million {summary.unit}",
            summary.cost_per_million,
            number,
            f"at {price:g} an hour" if price else "",
        ),
    ]
    known: list[list[Markup | str]] = []
    unknown: dict[str, list[str]] = {}
    for name, value, form, note in rows:
        if isinstance(value, Unknown):
            unknown.setdefault(value.why, []).append(name)
        else:
            known.append([name, measure(value, form), note])
    known += [[", ".join(names), measure(Unknown(why)), ""] for why, names in unknown.items()]
    return TableView(
        "Figures",
        ["figure", "value", "meaning"],
        known,
        [],
        [
            f"{summary.iterations} steady iterations in {summary.seconds:.1f} s; intervals cover "
            "95%."
        ],
    )


def _coverage(summary: Summary) -> str:
    if isinstance(summary.flops_coverage, Unknown | Interval):
        return ""
    left_out = ", ".join(summary.uncounted[:3])
    return f"from {percent(summary.flops_coverage)} of torch’s operations" + (
        f"; without a formula: {left_out} …" if left_out else ""
    )


def _stage_table(summary: Summary, colours: dict[str, int]) -> TableView:
    notes = _Footnotes()
    rows: list[list[Markup | str]] = [
        [
            _stage_name(stage, colours),
            measure(stage.share, percent),
            measure(stage.ns_per_iteration, duration),
            measure(stage.ns_per_call, duration),
            measure(stage.calls_per_iteration),
            notes.cell(stage.cpu_share, percent),
            notes.cell(stage.bytes_per_iteration, bytes_),
        ]
        for stage in sorted(
            summary.stages, key=lambda stage: (stage.inside is not None, -stage.share.value)
        )
    ]
    return TableView(
        "Time by stage",
        ["stage", "share", "an iteration", "a call", "calls", "on the CPU", "bytes moved"],
        rows,
        notes.reasons,
    )


@dataclass(frozen=True)
class _Compared:
    target: str
    date: str
    rate: Markup
    against: Markup


def _compared(runs: Sequence[Run]) -> list[_Compared]:
    """Benchmarks side by side, each against the first; empty with fewer than two."""
    benchmarks = [(run, summarize(run)) for run in runs if run.verb == "benchmark"]
    if len(benchmarks) < 2:
        return []
    first, unit = benchmarks[0][1].units_per_s, benchmarks[0][1].unit
    found = []
    for k, (run, summary) in enumerate(benchmarks):
        own, against = summary.units_per_s, Markup("the first")
        if k and summary.unit != unit:
            against = measure(Unknown("another unit"))
        elif k and isinstance(own, Interval) and isinstance(first, Interval):
            # Two separate runs: the ends of the ratio are those of the worst and the best case.
            ratio = Interval(own.value / first.value, own.low / first.high, own.high / first.low)
            against = measure(ratio, Form(((1.0, "×"),)))
        elif k:
            against = measure(Unknown("a rate is missing"))
        shown = Markup("{} {}/s").format(measure(own), summary.unit)
        found.append(_Compared(run.target, str(run.host.get("date", "")), shown, against))
    return found


# --- timeline --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """The stretch of time to draw, in ns; main: the lanes known to be the loop's own."""

    start: int
    end: int
    note: str
    main: frozenset[int] = frozenset()


def _timeline_figure(key: str, run: Run, colours: dict[str, int]) -> list[Figures]:
    names = {int(stage["index"]): str(stage["name"]) for stage in run.facts.get("stages") or []}
    array = run.arrays.get("events", np.zeros((0, 4), np.int64))
    events = [event for event in from_array(array) if event.stage in names]
    if not events:
        return []
    window = (
        _benchmark_window(run, events) if run.verb == "benchmark" else _simplify_window(run, events)
    )
    if window is None:
        return []
    lanes, left_out = _lanes(events, names, window)
    notes = [window.note]
    if left_out:
        notes.append(f"{left_out} more lanes are not drawn.")
    seen = [name for name in colours if any(s.stage == name for lane in lanes for s in lane.spans)]
    return [
        Figures(
            "One iteration",
            "Who did what when: a row for each thread, task or GPU stream; stages inside others "
            "are thinner. Calls too short to draw are joined, as high as the part of the time they "
            "take.",
            [
                timeline(
                    lanes,
                    window.end - window.start,
                    colours,
                    width=width,
                    name=f"{key}-timeline-{width}",
                )
                for width in (WIDE, NARROW)
            ],
            legend=[(name, colours[name] % COLOURS) for name in seen],
            notes=notes,
        )
    ]


def _benchmark_window(run: Run, events: Sequence[Event]) -> _Window | None:
    """The iteration of the last block whose length is the median of those logged whole."""
    blocks = run.arrays["block_of"]
    if not len(blocks):
        return None
    last = blocks == blocks[-1]
    starts, lengths = run.arrays["start_ns"][last], run.arrays["duration_ns"][last]
    ends = starts + lengths
    whole = np.ones(len(starts), bool)
    if len(run.arrays["events"]) >= KEPT_EVENTS:
        whole = ends <= max(event.end_ns for event in events)
    if not whole.any():
        end = max(event.end_ns for event in events)
        return _Window(
            int(starts[0]), end, f"The first {len(events):,} calls of an iteration, not all of it."
        )
    candidates = np.flatnonzero(whole)
    middle = candidates[np.argsort(lengths[candidates], kind="stable")[(len(candidates) - 1) // 2]]
    return _Window(
        int(starts[middle]),
        int(ends[middle]),
        f"The iteration of median length among {len(candidates)} of the steady state.",
    )


def _simplify_window(run: Run, events: Sequence[Event]) -> _Window | None:
    """From the first call of an iteration to that of the next, while the stages were recorded.

    Where iterations began was not logged: a stage that is called once an iteration tells.
    """
    stages = run.facts["stages"]
    own = [stage for stage in stages if not stage["beside_main"]]
    main = frozenset(int(lane) for stage in own for lane in stage["lanes"] if lane >= 0)
    note = "An iteration while the stages were recorded, a little slower than the steady state."
    starts = sorted(event.start_ns for event in events if event.lane in main) or sorted(
        event.start_ns for event in events
    )
    once = [
        sorted(event.start_ns for event in events if event.stage == stage["index"])
        for stage in own
        if 0.95 <= stage["calls_per_iteration"] <= 1.05
    ]
    calls = min((each for each in once if len(each) > 2), default=None)
    if calls is not None:
        # The first event was the first of its iteration; others begin as long before the call.
        turns = np.array(calls) - (calls[0] - starts[0])
        snapped = np.array(starts)[np.abs(np.subtract.outer(turns, starts)).argmin(axis=1)]
        lengths = np.diff(snapped)
        middle = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
        if lengths[middle] > 0:
            return _Window(int(snapped[middle]), int(snapped[middle + 1]), note, main)
    warm_up = run.facts.get("warm_up") or {}
    length = round(warm_up.get("ns_per_iteration") or 0)
    if length <= 0:
        return None
    begin = starts[len(starts) // 2] if len(starts) > 2 else starts[0]
    return _Window(begin, begin + length, f"About one iteration’s time. {note}", main)


def _lanes(
    events: Sequence[Event], names: dict[int, str], window: _Window
) -> tuple[list[Lane], int]:
    """The rows to draw, the loop's own first, and how many were left out."""
    rows: dict[int, list[Span]] = {}
    for lane, calls in by_lane(events).items():
        rows[lane] = _spans(calls, names, window)
    threads = sorted(
        (lane for lane in rows if lane > GPU_LANE),
        key=lambda lane: (lane not in window.main, min(e.start_ns for e in by_lane(events)[lane])),
    )
    found = []
    beside = 0
    for lane in threads:
        if lane in window.main or len(threads) == 1:
            label = "the loop’s thread"
        else:
            beside += 1
            label = f"thread {beside}"
        found.append(Lane(label, rows[lane]))
    tasks = _packed([rows[lane] for lane in rows if lane < GPU_LANE and rows[lane]])
    for k, spans in enumerate(tasks):
        found.append(Lane("asyncio tasks" if k == 0 else "asyncio tasks, side by side", spans))
    kept, left_out = found[:MOST_LANES], max(0, len(found) - MOST_LANES)
    if rows.get(GPU_LANE):
        kept.append(Lane("GPU", rows[GPU_LANE]))
    return kept, left_out


def _spans(calls: Sequence[Event], names: dict[int, str], window: _Window) -> list[Span]:
    """The calls of one lane that fall into the window, cut to it, with how deep they are nested."""
    found = []
    open_ends: list[int] = []
    # Of two that start together the longer one is the outer one.
    for event in sorted(calls, key=lambda event: (event.start_ns, -event.end_ns)):
        while open_ends and open_ends[-1] < event.end_ns:
            open_ends.pop()
        depth = len(open_ends)
        open_ends.append(event.end_ns)
        start, end = max(event.start_ns, window.start), min(event.end_ns, window.end)
        if start < end:
            found.append(Span(names[event.stage], start - window.start, end - window.start, depth))
    return found


def _packed(tasks: Sequence[list[Span]]) -> list[list[Span]]:
    """Short-lived tasks on as few rows as hold them side by side."""
    rows: list[list[Span]] = []
    for spans in sorted(tasks, key=lambda spans: min(span.start for span in spans)):
        begin = min(span.start for span in spans)
        row = next((row for row in rows if max(span.end for span in row) <= begin), None)
        if row is None:
            rows.append(list(spans))
        else:
            row.extend(spans)
    return rows


# --- train -----------------------------------------------------------------------------------


def _train_section(key: str, run: Run) -> Section:
    facts: dict[str, Any] = run.facts
    unit = str(facts.get("unit", "env steps"))
    curve = Curve(
        env_steps=run.arrays["env_steps"].tolist(),
        seconds=run.arrays["seconds"].tolist(),
        mean_return=run.arrays["mean_return"].tolist(),
        passed=run.arrays["passed"].tolist(),
        threshold=facts["threshold"],
        solved=bool(facts["solved"]),
        unit=unit,
    )
    return Section(
        key=key,
        run=run,
        heading=f"How it learned {facts['env_id']}",
        refused=None,
        answer=[],
        tiles=_train_tiles(curve, facts),
        figures=[
            Figures(
                "Learning curve",
                "Mean return of the greedy policy over the same fixed-seed episodes each time; "
                "the time of evaluation is not counted.",
                [
                    learning_curve(curve, width=width, name=f"{key}-learning-{width}")
                    for width in (WIDE, NARROW)
                ],
                notes=[_passes(curve)],
            )
        ],
        tables=[],
        warnings=[] if run.complete else ["the run was interrupted; this is what it had learned"],
        settings=_settings(run),
    )


def _train_tiles(curve: Curve, facts: dict[str, Any]) -> list[Tile]:
    wanted = "no threshold is set" if curve.threshold is None else f"wanted: {curve.threshold:g}"
    if curve.solved:
        return [
            Tile(
                "solved after",
                _apart(f"{facts['steps_to_solve']:,}"),
                f"{curve.unit}",
            ),
            Tile("training time", _apart(seconds(facts["seconds_to_solve"])), "to the second pass"),
            Tile("mean greedy return", _apart(f"{curve.mean_return[-1]:.1f}"), wanted),
        ]
    best = _apart(f"{max(curve.mean_return):.1f}") if curve.mean_return else Markup("unknown")
    done = f"in {int(curve.env_steps[-1]):,} {curve.unit}" if curve.env_steps else ""
    return [
        Tile("not solved", _apart("–"), done),
        Tile("best mean greedy return", best, wanted if curve.mean_return else "nothing evaluated"),
    ]


def _passes(curve: Curve) -> str:
    if curve.threshold is None:
        return "The env names no threshold, so nothing can pass."
    if curve.solved:
        return (
            f"The two large points are the passes, two in a row at {curve.threshold:g} or more, "
            "that count as solved."
        )
    return f"{sum(curve.passed)} evaluations reached {curve.threshold:g}; two in a row are wanted."
