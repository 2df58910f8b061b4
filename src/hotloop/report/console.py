"""Reports in the terminal: the answer first, then the table.

Each function prints one kind of run. Nothing is computed here but how wide a column is; words that
the page says too are those of `hotloop.report.statements`.
"""

from rich.bar import Bar
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from hotloop.benchmark.backends import BackendTable
from hotloop.benchmark.noise import Interval
from hotloop.benchmark.summary import Figure, Summary, Unknown
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.report import backends, statements
from hotloop.report.numbers import (
    Form,
    bytes_,
    duration,
    factor,
    figure,
    interval,
    measured,
    number,
    percent,
    rate,
    times,
)
from hotloop.report.statements import Amount, Name, NamedFigure, Sentence
from hotloop.simplify.deepen import Level
from hotloop.simplify.verdict import Verdict

_BAR = 32  # characters, of the longest bar


def print_benchmark(console: Console, summary: Summary, run: Run) -> None:
    """Rates first, then the use of the machine, then time by stage."""
    console.print(f"[bold]{escape(summary.target)}[/]  {describe(run.host)}", highlight=False)
    table = _plain_table()
    figures = statements.benchmark_figures(summary, run)
    for each in figures:
        if not isinstance(each.value, Unknown):
            table.add_row(each.name, figure(each.value, each.form), escape(each.note))
    console.print(table)
    if summary.iterations:
        console.print(f"[dim]{statements.measured_for(summary)}[/]")
    if summary.stages:
        console.print()
        console.print(_stage_table(summary))
        for line in statements.side_by_side(summary.stages):
            console.print(f"[dim]{escape(line)}[/]", highlight=False)
    for why, names in statements.names_by_reason([*figures, *_bytes_unknown(summary)]).items():
        console.print(
            f"[dim]unknown  {escape(', '.join(names))}: {escape(why)}[/]", highlight=False
        )
    _print_warnings(console, summary.warnings)


def print_simplify(console: Console, verdict: Verdict, run: Run) -> None:
    """Three lines: where the loop stands, what to fix next, what to leave; then the table."""
    for line in headline(verdict):
        console.print(line, highlight=False)
    unknown = statements.unknown(verdict)
    if unknown is not None:
        console.print(f"[bold]unknown[/]  {_marked(unknown)}", highlight=False)
    console.print()
    console.print(_verdict_table(verdict))
    for pair in statements.pairs(verdict):
        console.print(f"[dim]{escape(pair)}[/]", highlight=False)
    _print_ladder(console, verdict)
    console.print(f"[dim]{statements.restlessness(verdict)}[/]", highlight=False)
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
    answer = f"[bold]fix[/]    {_marked(statements.fix(verdict))}"
    if verdict.refused is not None:
        answer = f"[bold red]no verdict[/]  {escape(verdict.refused)}"
    return [_state_line(verdict), answer, f"[bold]leave[/]  {_marked(statements.leave(verdict))}"]


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
    _print_warnings(console, statements.train_warnings(run))


def print_compared(console: Console, runs: list[tuple[Run, Summary]]) -> None:
    """Benchmarks of one target side by side, each against the first."""
    table = Table(box=None, pad_edge=False)
    for column in ("run", "rate", "against the first"):
        table.add_column(column)
    for row in statements.compared(runs):
        table.add_row(
            f"{row.date} {escape(row.target)}",
            f"{figure(row.rate)} {escape(row.unit)}/s",
            "the first" if row.against is None else figure(row.against, factor),
        )
    console.print(table)


def print_backends(console: Console, table: BackendTable, run: Run) -> None:
    """Which backend is best and what auto chose; then every variant, with its rate as a bar."""
    title = f"[bold]{escape(table.env_id)}[/]  {table.num_envs} envs  {describe(run.host)}"
    console.print(title, highlight=False)
    console.print(f"[bold]best[/]   {_marked(backends.best(table))}", highlight=False)
    auto = backends.auto(table)
    if auto is not None:
        console.print(f"[bold]auto[/]   {_marked(auto)}", highlight=False)
    console.print()
    console.print(_backend_table(table))
    console.print(f"[dim]{backends.measured(table)}[/]", highlight=False)
    if table.choice is not None:
        console.print(f"[dim]auto: {escape(table.choice)}[/]", highlight=False)
    _print_warnings(console, table.warnings)


def _plain_table() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_column(style="dim")
    return table


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
    for stage in statements.by_share(summary.stages):
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


def _backend_table(table: BackendTable) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("backend", "left"),
        ("workers", "right"),
        ("envs each", "right"),
        ("SPS", "right"),
        ("to serial", "right"),
        ("", "left"),
    ):
        shown.add_column(name, justify=justify, no_wrap=name != "")  # type: ignore[arg-type]
    rates = [row.sps.value for row in table.rows if isinstance(row.sps, Interval)]
    for k, row in enumerate(table.rows):
        style = "bold green" if k == table.best else "yellow" if k in table.equals else ""
        bar: RenderableType = ""
        if isinstance(row.sps, Interval):
            bar = Bar(max(rates), 0, row.sps.value, width=_BAR, color="green" if style else "blue")
        elif isinstance(row.sps, Unknown):
            bar = f"[dim]{escape(row.sps.why)}[/]"
        shown.add_row(
            escape(backends.series_name(row)),
            _count(row.num_workers),
            _count(row.envs_per_worker),
            figure(row.sps, why=False),
            figure(row.to_serial, factor, why=False),
            bar,
            style=style,
        )
    return shown


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _bytes_unknown(summary: Summary) -> list[NamedFigure]:
    """The stages that have no bytes moved in their table, to be told with the other reasons."""
    return [
        NamedFigure(stage.name, Unknown(f"bytes moved, {stage.bytes_per_iteration.why}"), bytes_)
        for stage in summary.stages
        if isinstance(stage.bytes_per_iteration, Unknown)
    ]


def _print_warnings(console: Console, warnings: list[str]) -> None:
    for warning in warnings:
        console.print(f"[yellow]note[/]  {escape(warning)}", highlight=False)


def _verdict_table(verdict: Verdict) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("stage", "left"),
        ("share", "right"),
        ("gain if free", "left"),
        *((f"{k:g}x faster", "left") for k in verdict.faster),
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
            *(_value(gain, percent) for gain in row.faster.values()),
            _value(row.ceiling_ns, duration),
            _value(row.latency_ns, duration),
            _value(row.interference_ns, duration),
            "-" if isinstance(slack, Unknown) else duration(slack.slack_ns.value),
            f"[{style[row.verdict]}]{row.verdict}[/]"
            + (f" [dim]({escape(row.not_replaced)})[/]" if row.not_replaced else ""),
        )
    return table


def _value(of: Figure, form: Form) -> str:
    return "-" if not isinstance(of, Interval) else form(of.value)


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
        table.add_row(
            rung.name,
            measured(rung.ns, duration),
            number(verdict.units_per_iteration / rung.ns.value * 1e9)
            if rung.ns.value
            else "no limit",
            escape(rung.set_by),
            rung.to_gain,
        )
    console.print(table)
    console.print(f"[dim]{escape(statements.model(found))}[/]", highlight=False)


def _state_line(verdict: Verdict) -> str:
    target, now = f"[bold]{escape(verdict.target)}[/]", statements.state(verdict)
    if isinstance(now, Unknown):
        return f"{target}  {escape(now.why)}"
    # The time of an iteration is in the ladder: this has to stay one line.
    line = f"{target}  {rate(verdict.units_per_iteration, now.now_ns)} {escape(verdict.unit)}/s"
    if isinstance(verdict.ladder, Unknown):
        return f"{line}; no ceilings: {escape(verdict.ladder.why)}"
    factors = [
        f"{escape(rung.name)} {times(now.base_ns, rung.ns, ends=False)}"
        for rung in now.ceilings
        if isinstance(rung.ns, Interval)
    ]
    return f"{line}; ceilings: {', '.join(factors)}"


def _marked(sentence: Sentence) -> str:
    """A sentence with its names set off."""
    return "".join(_word(word) for word in sentence)


def _word(word: str | Name | Amount) -> str:
    if isinstance(word, Name):
        return f"[bold]{escape(word.text)}[/]"
    if isinstance(word, Amount):
        return escape(figure(word.value, word.form))
    return escape(word)
