"""Comparisons, for Python and for the command: two sides, in turn, and which is faster."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hotloop.errors import SettingError
from hotloop.loop.run import Run
from hotloop.repeat.comparison import CompareSettings, compare
from hotloop.repeat.estimate import Looks, launches_of
from hotloop.repeat.record import Record
from hotloop.repeat.sides import Place, Side, parse_side
from hotloop.repeat.verdict import ALPHA, CANNOT_SAY, Verdict, said
from hotloop.repeat.worktree import Repository
from hotloop.report.compare import COMPARE
from hotloop.results.result import Ending, Result

# What may be told while a comparison runs: the share of the budget that is used.
OnProgress = Callable[[float], None]


class CompareResult(Result[Verdict]):
    """Which of two sides is faster, and by how much."""

    kind = COMPARE

    @property
    def verdict(self) -> Verdict:
        """The answer; `verdict.verdict` is one of "faster", "slower", "same", "cannot say"."""
        return self.found


def run_compare(
    a: str,
    b: str | None = None,
    *,
    before: str | None = None,
    after: str | None = None,
    shared_environment: bool = False,
    budget: float = CompareSettings.budget,
    margin: float = CompareSettings.margin,
    seed: int = CompareSettings.seed,
) -> CompareResult:
    """Measure whether B is faster than A.

    a, b: targets, tests or commands, as the command line takes them; or a alone, with the commits
    `before` and `after`, of which a missing one is the working tree as it is. The settings are the
    fields of `CompareSettings`.

    Raises: SettingError for what cannot be compared; SideError for a side that crashes, ends early
    or counts in another unit; KeyboardInterrupt. If something was measured before, it is the
    attribute `result` of the exception.
    """
    settings = CompareSettings(budget=budget, margin=margin, seed=seed)
    with sides_of(a, b, before, after, shared_environment=shared_environment) as sides:
        return measure_compare(sides, settings, lambda _share: None).completed()


@contextlib.contextmanager
def sides_of(
    a: str,
    b: str | None = None,
    before: str | None = None,
    after: str | None = None,
    *,
    shared_environment: bool = False,
) -> Iterator[tuple[Side, Side]]:
    """The two sides that these words mean; worktrees are removed when the block ends.

    Raises: SettingError.
    """
    if (before, after) == (None, None):
        if b is None:
            raise SettingError(
                "expected two sides: A and B, or one target with --before and --after, which name "
                "commits"
            )
        yield parse_side("A", a), parse_side("B", b)
        return
    option = "--after" if before is None else "--before"
    repository = Repository.of(Path.cwd(), option)
    versions = {"--before": before, "--after": after}
    if before is None and b is None:
        versions["--before"] = "HEAD"
    _check_versions(repository, versions)
    with contextlib.ExitStack() as stack:
        first, second = (
            _place(stack, repository, option, ref, own_environment=not shared_environment)
            for option, ref in versions.items()
        )
        yield parse_side("A", a, first), parse_side("B", a if b is None else b, second)


def _check_versions(repository: Repository, versions: Mapping[str, str | None]) -> None:
    """Refuse what does not exist before any worktree is made, and changes that would be missed.

    Raises: SettingError.
    """
    for option, ref in versions.items():
        if ref is not None and not repository.has(ref) and not (ref and Path(ref).is_dir()):
            repository.commit(ref, option)
    after = versions["--after"]
    if after is None or not repository.has(after) or not repository.is_dirty():
        return
    if repository.commit(after, "--after") == repository.commit("HEAD", "--after"):
        raise SettingError(
            f"--after {after}: the working tree has changes that are not in {after}: commit them, "
            "or leave --after out to measure the tree as it is"
        )


def _place(
    stack: contextlib.ExitStack,
    repository: Repository,
    option: str,
    ref: str | None,
    *,
    own_environment: bool,
) -> Place:
    """Where a version runs: a commit, the folder of another checkout, or here."""
    if ref is None:
        return Place(about="as it is")
    if repository.has(ref):
        return stack.enter_context(repository.at(ref, option, own_environment=own_environment))
    return repository.elsewhere(Path(ref), option)


def measure_compare(
    sides: Sequence[Side], settings: CompareSettings, on_progress: OnProgress
) -> Ending[CompareResult]:
    """Compare two sides; an error is part of what is returned."""
    looks = Looks(ALPHA / 2, ALPHA / 2)

    def enough(record: Record) -> bool:
        look = looks.look(launches_of(record).ratio, float(record.shares[-1]))
        return look is not None and said(look, settings.margin) != CANNOT_SAY

    record = Record()
    error = None
    try:
        compare(sides, settings, record, enough, on_progress)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    return Ending(CompareResult(compare_run("compare", sides, settings, record, error)), error)


def compare_run(
    verb: str,
    sides: Sequence[Side],
    settings: CompareSettings,
    record: Record,
    error: BaseException | None,
) -> Run:
    """The run of a comparison, to be saved."""
    return Run(
        verb=verb,
        target=" / ".join(dict.fromkeys(side.label for side in sides)),
        settings=dataclasses.asdict(settings),
        facts=record.facts() | {"sides": [side.label for side in sides]},
        arrays=record.arrays(),
        complete=error is None,
    )
