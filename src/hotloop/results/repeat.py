"""The journal for the command: a try to note, and the overview of a target."""

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import RunError, SettingError, nearest
from hotloop.loop.figures import Interval, Unknown
from hotloop.repeat.entries import KEPT, REVERTED, Metric, RunEntry, TryEntry
from hotloop.repeat.journal import Contents, Journal
from hotloop.repeat.overview import Overview, newest_experiment, overview
from hotloop.repeat.sides import COMMAND, Side
from hotloop.repeat.stop import Limits
from hotloop.repeat.verdict import FASTER, Verdict
from hotloop.repeat.worktree import Repository
from hotloop.report.kinds import kind_of
from hotloop.results.noted import now
from hotloop.results.saved import open_run

_HASH_DIGITS = 12


@dataclass(frozen=True)
class Plan:
    """What is known of a try before it is measured.

    target: empty until `plan_try` has found it. predicted: the gain as a share; or stage: predict
    the gain of this stage if it were free. decision: "kept" or "reverted" whatever is measured,
    None to keep what is faster. versions: of the target, before and after; None where the sides are
    written out, or for the working tree.
    """

    hypothesis: str
    target: str = ""
    predicted: Metric | None = None
    stage: str | None = None
    effort_hours: float | None = None
    decision: str | None = None
    versions: tuple[str | None, str | None] = (None, None)


def read_overview(target: str | None, limits: Limits) -> Overview:
    """What the journal of the working folder says about a target.

    Raises: JournalError; SettingError for a target that it does not know.
    """
    return overview(Journal().contents(), target, limits, metrics_now)


def tries_of(targets: Iterable[str]) -> list[Overview]:
    """What the journal of the working folder says about each of these targets that was tried.

    targets: as runs have them; that of a comparison begins with the target of its first side.
    Raises: JournalError; SettingError if none of them was tried.
    """
    contents, wanted = Journal().contents(), list(dict.fromkeys(targets))
    tried = dict.fromkeys(each.target for each in contents.tries)
    found = [t for t in tried if any(each == t or each.startswith(f"{t} ") for each in wanted)]
    if not found:
        raise SettingError(
            f"--tries: the journal of this folder has no try of {', '.join(wanted)}; leave it out, "
            "or note one with `hotloop repeat try`"
        )
    return [overview(contents, target, Limits(), metrics_now) for target in found]


def plan_try(plan: Plan, before: Side) -> Plan:
    """Complete a plan with its target and its prediction, before anything is measured.

    Raises: JournalError; SettingError for a stage of which no gain is known.
    """
    contents = Journal().contents()
    plan = dataclasses.replace(plan, target=_target_of(before, contents))
    if plan.stage is None:
        return plan
    return dataclasses.replace(plan, predicted=_gain_of(plan.stage, plan.target, contents))


def try_entry(plan: Plan, sides: Sequence[Side], verdict: Verdict) -> TryEntry:
    """The entry of a try that was measured."""
    return TryEntry(
        at=now(),
        hypothesis=plan.hypothesis,
        target=plan.target,
        before=_noted_side(sides[0], plan.versions[0], "--before"),
        after=_noted_side(sides[1], plan.versions[1], "--after"),
        verdict=verdict.verdict,
        decision=plan.decision or (KEPT if verdict.verdict == FASTER else REVERTED),
        predicted=plan.predicted,
        achieved=_achieved(verdict),
        stage=plan.stage,
        effort_hours=plan.effort_hours,
    )


def metrics_now(run: RunEntry) -> Mapping[str, Metric]:
    """The metrics of a run as this version finds them in its file, else as they were noted."""
    if run.file is None:
        return run.metrics
    try:
        saved = open_run(Path(run.file))
        # Another run may have been saved there since.
        if (saved.verb, saved.target, saved.host) != (run.verb, run.target, run.host):
            return run.metrics
        kind = kind_of(saved)
        return kind.metrics(kind.summarize(saved), saved)
    except RunError:
        return run.metrics


def _target_of(before: Side, contents: Contents) -> str:
    """The target of a try: that of its side before.

    But where this is the side after of a try that was kept, the staircase goes on, also if it is
    another function or command.
    """
    for each in reversed(contents.tries):
        if each.kept and each.after == before.label:
            return each.target
    return shlex.join(before.words) if before.kind == COMMAND else before.words[0]


def _noted_side(side: Side, version: str | None, option: str) -> str:
    """A side with its commit: a branch, or HEAD, is another version tomorrow."""
    if version is None or Path(version).is_dir():
        return side.label
    commit = Repository.of(Path.cwd(), option).commit(version, option)
    return f"{side.label} ({commit[:_HASH_DIGITS]})"


def _gain_of(stage: str, target: str, contents: Contents) -> Metric:
    found = newest_experiment(target, contents, metrics_now)
    if found is None:
        raise SettingError(
            f"--stage: no experiment on {target} has found gains yet: run `hotloop simplify "
            f"{shlex.quote(target)}`, or give --predicted"
        )
    gains = {lever.name: lever.gain for lever in found.levers}
    if stage not in gains:
        raise SettingError(
            f"--stage: no gain of a stage {stage!r} of {target} is known{nearest(stage, gains)}"
        )
    return gains[stage]


def _achieved(verdict: Verdict) -> Metric | None:
    """The share of the time that was saved: 1 less the ratio of the times."""
    ratio = verdict.ratio
    if isinstance(ratio, Unknown):
        return None
    if isinstance(ratio, Interval):
        return Metric(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    return Metric(1 - ratio)
