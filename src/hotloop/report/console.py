"""Reports in the terminal: the answer first, then the table.

Each function prints one kind of run. Nothing is computed here but how wide a column is.
"""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Figure, Summary, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report.numbers import (
    Form,
    bytes_,
    duration,
    figure,
    interval,
    number,
    percent,
    seconds,
)
from hotloop.simplify.ceilings import Ladder, PipelineModel
from hotloop.simplify.deepen import Level
from hotloop.simplify.verdict import Pair, StageVerdict, Verdict

_COST = {
    "waiting": "the loop waits for it",
    "contention": "it takes the others' cores or lock: more workers would make it worse",
    "own work": "its own work",
    "unknown": "how it costs is not known",
}


def print_benchmark(console: Console, summary: Summary, run: Run) -> None:
    """Rates first, then the use of the machine, then time by stage."""
    console.print(f"[bold]{escape(summary.target)}[/]  {describe(run.host)}", highlight=False)
    table = _plain_table()
    rows: list[tuple[str, Figure, Form, str]] = [
        (f"{summary.unit}/s", summary.units_per_s, number, ""),
        ("batches/s", summary.batches_per_s, number, ""),
        *(
            []
            if summary.unit == "iterations"
            else [("iterations/s", summary.iterations_per_s, number, "")]
        ),
        ("iteration", summary.ms_per_iteration, duration.scaled(1e6), ""),
        ("start-up", summary.start_up_s, seconds, "before the first iteration"),
        ("first batch", summary.first_batch_s, seconds, "from the start to the first one's end"),
        ("warm-up", summary.warm_up_s, seconds, "apart from the steady state"),
        ("whole process", summary.wall_s, seconds, "from its start to the end of the measurement"),
        ("CPU", summary.cpu_share, percent, "of the cores this process tree may use"),
        ("peak memory", summary.memory_bytes, bytes_, "resident, of the process tree"),
        (
            "GPU duty cycle",
            summary.gpu_duty,
            percent,
            "time with a kernel awake, not efficiency",
        ),
        ("GPU memory", summary.gpu_memory_bytes, bytes_, ""),
        ("GPU SM activity", summary.gpu_sm, percent, ""),
        ("GPU tensor activity", summary.gpu_tensor, percent, ""),
        ("FLOP/s", summary.flops_per_s, number, _coverage(summary)),
        ("MFU", summary.mfu, percent, _peak(run)),
        (
            f"cost per million {summary.unit}",
            summary.cost_per_million,
            number,
            f"at {summary.price_per_hour:g} an hour" if summary.price_per_hour else "",
        ),
    ]
    unknown: dict[str, list[str]] = {}
    for name, value, form, note in rows:
        if isinstance(value, Unknown):
            unknown.setdefault(value.why, []).append(name)
        else:
            table.add_row(name, figure(value, form), escape(note))
    console.print(table)
    if summary.iterations:
        console.print(
            f"[dim]{summary.iterations} steady iterations in {summary.seconds:.1f} s; "
            "intervals cover 95%.[/]"
        )
    if summary.stages:
        console.print()
        console.print(_stage_table(summary))
        for stage in summary.stages:
            if isinstance(stage.bytes_per_iteration, Unknown):
                why = f"bytes moved, {stage.bytes_per_iteration.why}"
                unknown.setdefault(why, []).append(stage.name)
    for why, names in unknown.items():
        console.print(
            f"[dim]unknown  {escape(', '.join(names))}: {escape(why)}[/]", highlight=False
        )
    _print_warnings(console, summary.warnings)


def print_simplify(console: Console, verdict: Verdict, run: Run) -> None:
    """Three lines: where the loop stands, what to fix next, what to leave; then the table."""
    for line in headline(verdict):
        console.print(line, highlight=False)
    console.print()
    console.print(_verdict_table(verdict))
    for pair in verdict.pairs:
        console.print(
            f"[dim]together {escape(' + '.join(pair.stages))}: {interval(pair.gain, percent)}[/]",
            highlight=False,
        )
    _print_ladder(console, verdict)
    _print_aa(console, verdict)
    console.print(f"[dim]{describe(run.host)}[/]", highlight=False)
    _print_warnings(console, verdict.warnings)


def print_level(console: Console, level: Level) -> None:
    """One level of looking into a stage: its parts, its hottest lines, and what comes next."""
    console.print(f"[bold]inside {escape(level.stage)}[/]", highlight=False)
    if level.verdict is not None:
        console.print(_verdict_table(level.verdict))
    for why in level.left_out:
        console.print(f"[dim]not looked at: {escape(why)}[/]", highlight=False)
    for file, line, function, share in level.hot_lines:
        console.print(
            f"[dim]{percent(share):>6}  {escape(file)}:{line} {escape(function)}[/]",
            highlight=False,
            soft_wrap=True,
        )
    if level.stopped is not None:
        console.print(
            f"[bold]stop[/]   {escape(level.stopped)}. The lines above are where its time goes; "
            "with native frames: py-spy record --native -- hotloop benchmark …",
            highlight=False,
        )
    if level.verdict is not None:
        _print_warnings(console, level.verdict.warnings)
    console.print()


def headline(verdict: Verdict) -> list[str]:
    """The first screen, as three lines of markup."""
    return [_state_line(verdict), _fix_line(verdict), _leave_line(verdict)]


def print_train(console: Console, run: Run) -> None:
    """How a training run went."""
    facts = run.facts
    console.print(f"[bold]{escape(run.target)}[/]  {describe(run.host)}", highlight=False)
    steps, returns = run.arrays["env_steps"], run.arrays["mean_return"]
    if facts["solved"]:
        console.print(
            f"[green]solved[/] after {facts['steps_to_solve']:,} env steps in "
            f"{facts['seconds_to_solve']:.2f} s of training: mean greedy return "
            f"{returns[-1]:.1f} over 20 fixed-seed episodes, at least {facts['threshold']:g} twice "
            "in a row",
            highlight=False,
        )
    elif len(returns):
        wanted = "" if facts["threshold"] is None else f" (wanted: {facts['threshold']:g})"
        console.print(
            f"[yellow]not solved[/] in {int(steps[-1]):,} env steps: best mean greedy return "
            f"{returns.max():.1f}{wanted}",
            highlight=False,
        )
    else:
        console.print("[yellow]not solved[/]: nothing was evaluated")
    if not run.complete:
        _print_warnings(console, ["the run was interrupted; this is what it had learned"])


def print_compared(console: Console, runs: list[tuple[Run, Summary]]) -> None:
    """Benchmarks of one target side by side, each against the first."""
    table = Table(box=None, pad_edge=False)
    for column in ("run", "rate", "against the first"):
        table.add_column(column)
    first = runs[0][1].units_per_s
    for run, summary in runs:
        rate = summary.units_per_s
        against = ""
        if summary is not runs[0][1] and isinstance(rate, Interval) and isinstance(first, Interval):
            # Two separate runs: the ends of the ratio are those of the worst and the best case.
            ratio = Interval(rate.value / first.value, rate.low / first.high, rate.high / first.low)
            against = f"times {interval(ratio)}"
        table.add_row(
            f"{run.host['date']} {escape(run.target)}",
            f"{figure(rate)} {escape(summary.unit)}/s",
            against,
        )
    console.print(table)


def _state_line(verdict: Verdict) -> str:
    now = verdict.baseline_ns
    if isinstance(now, Unknown):
        return f"[bold]{escape(verdict.target)}[/]  {now.why}"
    units = verdict.units_per_iteration
    rate = Interval(units / now.value, units / now.high, units / now.low).scaled(1e9)
    line = (
        f"[bold]{escape(verdict.target)}[/]  {interval(rate)} {escape(verdict.unit)}/s, "
        f"{duration(now.value)} an iteration"
    )
    if isinstance(verdict.ladder, Unknown):
        return f"{line}; no ceilings: {verdict.ladder.why}"
    factors = [
        f"{rung.name} {now.value / rung.ns.value:.3g}x"
        for rung in verdict.ladder.rungs[1:]
        if isinstance(rung.ns, Interval) and rung.ns.value > 0
    ]
    return f"{line}; ceilings: {', '.join(factors)}"


def _fix_line(verdict: Verdict) -> str:
    if verdict.refused is not None:
        return f"[bold red]no verdict[/]  {verdict.refused}"
    fix = verdict.fix
    if fix is None:
        return "[bold]fix[/]    nothing: no stage alone, and no pair tried, gains what is worth it"
    if isinstance(fix, Pair):
        both = " and ".join(fix.stages)
        return (
            f"[bold]fix[/]    {escape(both)} together: up to {interval(fix.gain, percent)} of the "
            "time; neither gains alone"
        )
    line = (
        f"[bold]fix[/]    [bold]{escape(fix.name)}[/]: up to {_gain(fix)} of the time; "
        f"{_COST[fix.cost]}"
    )
    if isinstance(fix.gain_if_faster, Interval):
        line += f"; twice as fast saves {interval(fix.gain_if_faster, percent)}"
    if verdict.contention:
        line += ". Contention, not modelled: try before you add workers"
    return line


def _leave_line(verdict: Verdict) -> str:
    if not verdict.leave:
        return "[bold]leave[/]  nothing is known to be safe to ignore"
    rows = {row.name: row for row in verdict.rows}
    most = max(gain.high for name in verdict.leave if isinstance(gain := rows[name].gain, Interval))
    return (
        f"[bold]leave[/]  {escape(', '.join(verdict.leave))}: under {percent(max(most, 0.0))} "
        f"{'each, ' if len(verdict.leave) > 1 else ''}even if free"
    )


def _verdict_table(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("stage", "left"),
        ("share", "right"),
        ("gain if free", "left"),
        ("2x faster", "left"),
        ("ceiling", "right"),
        ("waits", "right"),
        ("contends", "right"),
        ("slack", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=name != "")  # type: ignore[arg-type]
    style = {"fix": "bold green", "leave": "dim", "unclear": "yellow", "not replaced": "dim"}
    for row in verdict.rows:
        gain = interval(row.gain, percent) if isinstance(row.gain, Interval) else "delayed only"
        slack = row.slack
        table.add_row(
            ("  " if row.inside else "") + escape(row.name),
            percent(row.share),
            gain,
            _value(row.gain_if_faster, percent),
            _value(row.ceiling_ns, duration),
            _value(row.latency_ns, duration),
            _value(row.interference_ns, duration),
            "-" if isinstance(slack, Unknown) else duration(slack.slack_ns.value),
            f"[{style[row.verdict]}]{row.verdict}[/]"
            + (f" [dim]({escape(row.not_replaced)})[/]" if row.not_replaced else ""),
        )
    return table


def _print_ladder(console: Console, verdict: Verdict) -> None:
    found = verdict.ladder
    if isinstance(found, Unknown):
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("ladder", "iteration", f"{verdict.unit}/s", "set by", "the gap above closes by"):
        table.add_column(name)
    for rung in found.rungs:
        if isinstance(rung.ns, Unknown):
            table.add_row(rung.name, "unknown", "", f"[dim]{escape(rung.ns.why)}[/]", "")
            continue
        rate = verdict.units_per_iteration / rung.ns.value * 1e9 if rung.ns.value else float("inf")
        table.add_row(
            rung.name,
            interval(rung.ns, duration) if rung.ns.low < rung.ns.high else duration(rung.ns.value),
            number(rate),
            escape(rung.set_by),
            rung.to_gain,
        )
    console.print(table)
    _print_model(console, found)


def _print_model(console: Console, found: Ladder) -> None:
    model = found.model
    if isinstance(model, PipelineModel):
        text = (
            "a pipeline of the stages' ceilings reproduces the baseline: "
            f"{interval(model.predicted_ns, duration)}"
            if model.holds
            else "contention, not modelled: a pipeline of the stages' ceilings would take "
            f"{interval(model.predicted_ns, duration)}"
        )
    else:
        text = f"no pipeline model: {model.why}"
    console.print(f"[dim]{text}[/]", highlight=False)


def _print_aa(console: Console, verdict: Verdict) -> None:
    gains = verdict.aa.gains.values()
    shown = "; ".join(interval(gain, percent) for gain in gains)
    console.print(
        f"[dim]{verdict.rounds} rounds in {verdict.seconds:.1f} s; arms that are the same differ "
        f"by {shown or 'unknown: none ran often enough'}[/]",
        highlight=False,
    )


def _gain(row: StageVerdict) -> str:
    return interval(row.gain, percent) if isinstance(row.gain, Interval) else "an unknown part"


def _value(of: Figure, form: Form) -> str:
    return "-" if not isinstance(of, Interval) else form(of.value)


def _stage_table(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("stage", "left"),
        ("share", "left"),
        ("an iteration", "right"),
        ("a call", "right"),
        ("calls", "right"),
        ("on the CPU", "right"),
        ("bytes moved", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for stage in sorted(summary.stages, key=lambda s: (s.inside is not None, -s.share.value)):
        table.add_row(
            ("  " if stage.inside else "") + escape(stage.name),
            interval(stage.share, percent),
            duration(stage.ns_per_iteration.value),
            duration(stage.ns_per_call),
            number(stage.calls_per_iteration),
            figure(stage.cpu_share, percent, why=False),
            figure(stage.bytes_per_iteration, bytes_, why=False),
        )
    return table


def _plain_table() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    return table


def _print_warnings(console: Console, warnings: list[str]) -> None:
    for warning in warnings:
        console.print(f"[yellow]note[/]  {escape(warning)}", highlight=False)


def _coverage(summary: Summary) -> str:
    if isinstance(summary.flops_coverage, Unknown | Interval):
        return ""
    left_out = ", ".join(summary.uncounted[:3])
    return f"from {percent(summary.flops_coverage)} of torch's operations" + (
        f"; without a formula: {left_out} …" if left_out else ""
    )


def _peak(run: Run) -> str:
    peaks = run.facts.get("peaks")
    return f"of a measured {number(peaks['flops_per_s'])}; {peaks['how']}" if peaks else ""
