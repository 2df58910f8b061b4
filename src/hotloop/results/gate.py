"""Gates, for Python and for the command: a version against its baseline, and whether it passes."""

import contextlib
import dataclasses
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from hotloop.errors import SettingError
from hotloop.repeat.comparison import compare
from hotloop.repeat.gate import GateSettings, GateVerdict, looking
from hotloop.repeat.record import Record
from hotloop.repeat.sides import Place, Side, parse_side
from hotloop.repeat.worktree import Repository
from hotloop.report.gate import GATE
from hotloop.results.compare import OnProgress, compare_run
from hotloop.results.result import Ending, Result

_OPTION = "--baseline"
_EXPECTED = (
    "Expected a commit, a branch or a tag, the folder of another checkout, or a target, a test or "
    "a command to compare with"
)
_TARGET_ENDINGS = (".py", ".yaml", ".yml")


class GateResult(Result[GateVerdict]):
    """Whether a version is slower than its baseline."""

    kind = GATE

    @property
    def verdict(self) -> GateVerdict:
        """The answer; `verdict.verdict` is one of "blocked", "passed", "cannot say"."""
        return self.found


def run_gate(
    target: str,
    baseline: str,
    *,
    shared_environment: bool = False,
    budget: float = GateSettings.budget,
    worse: float = GateSettings.worse,
    seed: int = GateSettings.seed,
) -> GateResult:
    """Measure whether a target is slower than its baseline.

    target: what runs in the working tree, as the command line takes it. baseline: a commit, a
    branch or a tag, or the folder of another checkout, at which the target runs, too; or another
    target, test or command. The settings are the fields of `GateSettings`.

    Raises: SettingError for what cannot be compared; SideError for a side that crashes, ends early
    or counts in another unit; KeyboardInterrupt. If something was measured before, it is the
    attribute `result` of the exception.
    """
    settings = GateSettings(budget=budget, worse=worse, seed=seed)
    with gate_sides(target, baseline, shared_environment=shared_environment) as sides:
        return measure_gate(sides, settings).completed()


@contextlib.contextmanager
def gate_sides(
    target: str, baseline: str, *, shared_environment: bool = False
) -> Iterator[tuple[Side, Side]]:
    """The baseline, A, and the target in the working tree, B; a worktree goes with the block's end.

    What names a commit is one, also where a folder or a command has the same name.
    Raises: SettingError.
    """
    here = Place(about="as it is")
    try:
        repository = Repository.of(Path.cwd(), _OPTION)
        repository.commit(baseline, _OPTION)
    except SettingError as error:
        no_commit = error
    else:
        own = not shared_environment
        with repository.at(baseline, _OPTION, own_environment=own) as place:
            yield parse_side("A", target, place), parse_side("B", target, here)
        return
    if baseline and Path(baseline).is_dir():
        place = _elsewhere(Path(baseline))
        yield parse_side("A", target, place), parse_side("B", target, here)
    elif _is_side(baseline):
        yield parse_side("A", baseline), parse_side("B", target)
    else:
        end = "" if str(no_commit).endswith("?") else "."
        raise SettingError(f"{no_commit}{end} {_EXPECTED}")


def measure_gate(
    sides: Sequence[Side], settings: GateSettings, on_progress: OnProgress = lambda _share: None
) -> Ending[GateResult]:
    """Measure until it is decided; an error is part of what is returned."""
    record = Record()
    error = None
    try:
        compare(sides, settings.comparison, record, looking(settings.worse), on_progress)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    run = compare_run("gate", sides, settings.comparison, record, error)
    a, b = sides
    against = f"itself {a.place.about}" if a.place.about else a.label
    return Ending(
        GateResult(
            dataclasses.replace(
                run, target=f"{b.text} against {against}", settings=dataclasses.asdict(settings)
            )
        ),
        error,
    )


def _elsewhere(folder: Path) -> Place:
    """The same folder in another checkout. Raises: SettingError for one of this checkout."""
    place = Repository.of(Path.cwd(), _OPTION).elsewhere(folder, _OPTION)
    if place.original is None:
        raise SettingError(f"{_OPTION}: {folder} is a folder of this checkout. {_EXPECTED}")
    return place


def _is_side(text: str) -> bool:
    """Whether a text is clearly a target, a test or a command, and no misspelt commit."""
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    if not words:
        return False
    first = words[0]
    clear = ":" in first or "=" in first or first.endswith(_TARGET_ENDINGS)
    return clear or shutil.which(first) is not None
