"""Comparing two sides: launch both, look, and launch again until it is known which is faster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hotloop.errors import SettingError, expect_positive
from hotloop.repeat.command_launcher import CommandLauncher
from hotloop.repeat.loop_launcher import LoopLauncher
from hotloop.repeat.record import Record
from hotloop.repeat.sides import COMMAND, Side


@dataclass(frozen=True)
class CompareSettings:
    """How long to compare, and what counts as the same."""

    budget: float = 120.0
    """Time for the whole comparison, in seconds; clear cases need less."""
    margin: float = 0.03
    """The difference that does not matter, as a share of A's time."""
    seed: int = 0
    """Of the order of the blocks, and of Python's hashes."""

    def __post_init__(self) -> None:
        expect_positive("budget", self.budget)
        expect_positive("margin", self.margin)


class Launcher(Protocol):
    """How two sides of a kind are measured against each other."""

    @property
    def unit(self) -> str:
        """What is counted, once something was launched."""
        ...

    def launch(self, number: int, record: Record, on_round: Callable[[], None]) -> None:
        """Start both sides, measure them in turn, and end them.

        Raises: SideError.
        """
        ...


def compare(
    sides: Sequence[Side],
    settings: CompareSettings,
    record: Record,
    enough: Callable[[Record], bool],
    on_progress: Callable[[float], None],
) -> None:
    """Launch until the caller knows enough, or the next launch would exceed the budget.

    record: grows meanwhile; what it holds stays true if an error or an interrupt ends this.
    enough: looks at the record after each launch. on_progress: called with the share of the budget
    that is used.
    Raises: SettingError for a loop beside a command; SideError for a side that crashes, ends too
    early, or counts in another unit.
    """
    launcher = _launcher(sides, settings)
    begin = time.perf_counter()
    record.budget_s = settings.budget

    def on_round() -> None:
        on_progress((time.perf_counter() - begin) / settings.budget)

    while True:
        launcher.launch(len(record.ended_s), record, on_round)
        record.unit = launcher.unit
        passed = time.perf_counter() - begin
        record.ended_s.append(passed)
        record.last_look = passed + passed / len(record.ended_s) > settings.budget
        if enough(record) or record.last_look:
            return


def _launcher(sides: Sequence[Side], settings: CompareSettings) -> Launcher:
    commands = [side for side in sides if side.kind == COMMAND]
    if not commands:
        return LoopLauncher(sides, settings.budget, settings.seed)
    if len(commands) == len(sides):
        return CommandLauncher(sides, settings.seed)
    (other,) = (side for side in sides if side.kind != COMMAND)
    raise SettingError(
        f"{commands[0].name} ({commands[0].text}) is a whole command and {other.name} "
        f"({other.text}) a loop: expected two of one kind, as their times are not for the same work"
    )
