"""`hotloop repeat`: did it help, was it worth it, are we done? `repeat try` notes a change."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from hotloop.cli.compare import progress_bar
from hotloop.cli.files import check_place
from hotloop.cli.finish import finish
from hotloop.cli.output import consoles, parse, print_json
from hotloop.errors import SettingError, expect_positive, parsed_share
from hotloop.repeat.comparison import CompareSettings
from hotloop.repeat.entries import KEPT, REVERTED, Metric, TryEntry
from hotloop.repeat.journal import Journal
from hotloop.repeat.sides import Side, parse_side
from hotloop.repeat.stop import Limits
from hotloop.report.staircase import overview_json, print_staircase, print_try, write_staircase
from hotloop.results.compare import CompareResult, measure_compare, sides_of
from hotloop.results.repeat import Plan, plan_try, read_overview, try_entry
from hotloop.results.result import Ending


@dataclass(frozen=True)
class Options:
    """Show the tries of a target, how predictions came true, what to try next, and whether to stop.

    A try is noted by: hotloop repeat try "WHAT" --before A --after B [--target TARGET]
    [--predicted 12% | --stage NAME] [--effort-hours H] [--keep | --revert] [--budget S]
    [--margin 3%] [--shared-environment] [--json] [--save FILE]; its --help says more.
    """

    target: str | None = None
    """The target to show; default: that of the newest try."""
    hours: float | None = None
    """How many hours the loop will still run."""
    price_per_hour: float | None = None
    """What the machine costs an hour, in any one currency; default: as the newest run says."""
    effort_hours: float | None = None
    """How many hours of work the next try takes."""
    effort_price_per_hour: float = Limits.effort_price_per_hour
    """What an hour of work costs."""
    target_rate: float | None = None
    """The rate that is enough, in units per second."""
    json: bool = False
    """Print everything as JSON instead of the report."""
    html: Path | None = None
    """Write a self-contained page with charts here, instead of printing."""


@dataclass(frozen=True)
class TryOptions:
    """Measure a change against what was before, and note it in the journal."""

    what: tyro.conf.Positional[str]
    """What was changed, such as "vectorise the loader"."""
    before: str | None = None
    """The side before, as `hotloop compare` takes it; with --target a commit, branch or folder."""
    after: str | None = None
    """The same for the side after; with --target, default: the working tree as it is."""
    target: str | None = None
    """What to run in both versions."""
    predicted: str | None = None
    """The share of the time that it should save, such as 12%."""
    stage: str | None = None
    """Predict what the newest `hotloop simplify` of the target says this stage gains if free."""
    effort_hours: float | None = None
    """How many hours of work it took."""
    keep: bool = False
    """Note it as kept, also if it is not faster."""
    revert: bool = False
    """Note it as reverted, also if it is faster."""
    budget: float = CompareSettings.budget
    """Time for the whole comparison, in seconds; clear cases need less."""
    margin: str = "3%"
    """The difference that does not matter, as a share of the time before."""
    shared_environment: bool = False
    """Run a commit that declares other dependencies with what is installed here."""
    json: bool = False
    """Print the answer as JSON."""
    save: Path | None = None
    """Where to save the run of the comparison; default: under .hotloop/."""


def run(arguments: list[str]) -> int:
    """Run the verb; returns the exit code."""
    if arguments[:1] == ["try"]:
        return _try(parse(TryOptions, arguments[1:], "repeat try"))
    options = parse(Options, arguments, "repeat")
    console, _ = consoles(options.json)
    limits = Limits(
        hours=options.hours,
        price_per_hour=options.price_per_hour,
        effort_hours=options.effort_hours,
        target_rate=options.target_rate,
        effort_price_per_hour=options.effort_price_per_hour,
    )
    check_place("--html", options.html)
    found = read_overview(options.target, limits)
    if options.html is not None:
        path = write_staircase(found, options.html)
        console.print(f"report written: {path.resolve()}", highlight=False, soft_wrap=True)
    if options.json:
        print_json(overview_json(found))
    elif options.html is None:
        print_staircase(console, found)
    return 0


def _try(options: TryOptions) -> int:
    """Measure and note a change; returns the exit code."""
    console, errors = consoles(options.json)
    plan = _plan(options)
    settings = CompareSettings(options.budget, parsed_share("--margin", options.margin))
    # The target as it stands is the side before, as far as that is known without a worktree.
    plan = plan_try(plan, parse_side("--before", options.target or options.before or ""))
    with _sides(options) as sides:
        # Whatever speaks against writing is said now, not after the measurement.
        Journal().prepare()
        ending = _measured(options.what, sides, settings, errors)
        tried: TryEntry | None = None
        if ending.error is None:
            tried = try_entry(plan, sides, ending.result.verdict)

    def show() -> None:
        if options.json:
            print_json({"comparison": ending.result.to_dict(), "try": tried})
        else:
            ending.result.print_to(console)
        if tried is None:
            errors.print("[dim]the try is not noted: its comparison was cut short[/]")
        elif not options.json:
            print_try(console, tried)

    return finish(
        errors,
        ending.result.run,
        ending.error,
        options.save,
        show,
        found=lambda: ending.result.found,
        tried=tried,
    )


def _plan(options: TryOptions) -> Plan:
    """What the options say about the try.

    Raises: SettingError for options that contradict each other, or mean nothing.
    """
    if not options.what.strip():
        raise SettingError("expected a few words that say what was changed, got none")
    if options.keep and options.revert:
        raise SettingError("--keep and --revert: expected one of them, got both")
    if options.predicted is not None and options.stage is not None:
        raise SettingError("--predicted and --stage: expected one of them, as each is a prediction")
    if options.before is None:
        raise SettingError("--before: expected what the change is compared with")
    if options.after is None and options.target is None:
        raise SettingError(
            "--after: expected the side with the change; or --target, with versions of it as sides"
        )
    if options.shared_environment and options.target is None:
        raise SettingError("--shared-environment: expected --target, of which it is a commit's")
    expect_positive("--effort-hours", options.effort_hours)
    predicted = None
    if options.predicted is not None:
        predicted = parsed_share("--predicted", options.predicted)
        if predicted >= 1:
            raise SettingError(
                f"--predicted: expected less than 100% of the time, such as 12%, got "
                f"{options.predicted}"
            )
    decision = KEPT if options.keep else REVERTED if options.revert else None
    return Plan(
        hypothesis=options.what.strip(),
        predicted=None if predicted is None else Metric(predicted),
        stage=options.stage,
        effort_hours=options.effort_hours,
        decision=decision,
        versions=(None, None) if options.target is None else (options.before, options.after),
    )


def _sides(options: TryOptions) -> contextlib.AbstractContextManager[tuple[Side, Side]]:
    if options.target is None:
        assert options.before is not None
        return sides_of(options.before, options.after)
    return sides_of(
        options.target,
        before=options.before,
        after=options.after,
        shared_environment=options.shared_environment,
    )


def _measured(
    what: str, sides: Sequence[Side], settings: CompareSettings, errors: Console
) -> Ending[CompareResult]:
    """Compare behind a progress bar."""
    with progress_bar(errors, "try") as bar:
        task = bar.add_task(what, total=1.0)
        return measure_compare(sides, settings, lambda share: bar.update(task, completed=share))
