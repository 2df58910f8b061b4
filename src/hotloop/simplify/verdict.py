"""The verdict of an experiment, as reports read it."""

from collections.abc import Sequence
from dataclasses import dataclass

from hotloop.benchmark.ranks import Ranks
from hotloop.loop.figures import Interval, Unknown
from hotloop.simplify.aa import AaTest
from hotloop.simplify.ceilings import Ladder
from hotloop.simplify.stage_facts import Place
from hotloop.simplify.verdict_rows import Group, Pair, Rest, StageVerdict


@dataclass(frozen=True)
class Verdict:
    """The answer of an experiment."""

    target: str
    unit: str
    baseline_ns: Interval | Unknown
    units_per_iteration: float
    faster: list[float]  # how many times faster, that were tried
    rows: list[StageVerdict]
    pairs: list[Pair]
    groups: list[Group]
    rest: Rest | None
    ladder: Ladder | Unknown
    aa: AaTest
    refused: str | None
    fix: StageVerdict | Pair | None
    ties: list[str]  # other stages to fix whose gains differ by no more than the errors
    unknown: list[str]  # stages of which no gain is known: they were not replaced
    leave: list[str]
    rounds: int
    seconds: float
    warnings: list[str]
    contention: bool
    blocks: str  # how long they were, and what a switch of arms leaves behind
    price_per_hour: float | None
    rest_places: Sequence[Place] = ()  # what runs between the stages
    ranks: Ranks | None = None  # of a script that runs as several
