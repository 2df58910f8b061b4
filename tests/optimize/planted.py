"""Choices with planted speeds on a clock of their own, so that a search takes no time."""

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hotloop.loop.lever import Lever, Option
from hotloop.optimize.bench import Entrant, TrialError
from hotloop.optimize.space import Choice, Space

Speed = Callable[[Mapping[str, Option]], float]

PAUSE = 3


@dataclass
class Planted:
    """A bench whose choices have known speeds, in units a second.

    speed: of the options; None where they need too much memory. noise: standard deviation of the
    logarithm of a turn's rate. drift: how much all of them change together from round to round.
    turn_s, open_s: what a turn and making a choice ready take. pauses: the first of
    so many turns of a changed loop has an iteration that takes `PAUSE` turns besides; None: none.
    begun: what was said to be opened next.
    """

    levers: list[Lever]
    speed: Speed
    noise: float = 0.0
    drift: float = 0.0
    turn_s: float = 0.1
    open_s: float = 0.0
    places: int = 4
    same_work: bool = False
    usual_noise: float = 0.0
    warm_rounds: int = 3
    least_rounds: int = 1
    final_rounds: int = 6
    judging_share: float = 0.25
    free: Collection[str] = ()
    seed: int = 0
    now_s: float = 0.0
    opened: int = 0
    level: float = 1.0
    pauses: int | None = None
    begun: list[Choice] = field(default_factory=list)
    drawn: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.space = Space(self.levers)
        self.drawn = random.Random(self.seed)

    def begin(self, choices: Sequence[Choice]) -> None:
        self.begun += choices

    def open(self, choice: Choice, *, checked: bool = False) -> Entrant:
        self.now_s += self.open_s
        speed = self.speed(self.space.options(choice))
        if not math.isfinite(speed):
            raise TrialError("it needs more memory than there is")
        self.opened += 1
        changed = bool(self.space.changes(choice))
        return _Runs(self, speed, self.pauses if changed else None)

    def next_round(self) -> None:
        self.level = math.exp(self.drawn.gauss(0, self.drift))

    def clock(self) -> float:
        return self.now_s

    def best(self) -> float:
        """The highest speed of all choices."""
        speeds = [self.speed(self.space.options(each)) for each in self.space.all()]
        return max(each for each in speeds if math.isfinite(each))


@dataclass
class _Runs:
    bench: Planted
    speed: float
    pauses: int | None = None
    is_open: bool = True
    turns: int = 0

    @property
    def granularity(self) -> float:
        return 0.0 if self.pauses is None else PAUSE / (self.turns + PAUSE)

    def turn(self) -> float:
        assert self.is_open
        bench = self.bench
        bench.now_s += bench.turn_s
        self.turns += 1
        paused = self.pauses is not None and self.turns % self.pauses == 1
        return (
            self.speed
            / (1 + PAUSE * paused)
            * bench.level
            * math.exp(bench.drawn.gauss(0, bench.noise))
        )

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False
        self.bench.opened -= 1


# --- planted loops -------------------------------------------------------------------------------

WORKERS = Lever("workers", (1, 2, 3, 4, 6, 8), now=1)
BATCH = Lever("batch", (8, 16, 32, 64, 128, 256), now=32)
MODE = Lever("mode", ("plain", "fused", "graph"), now="plain")
PINNED = Lever("pinned", (False, True), now=False)
COPY = Lever("copy", (True, False), now=True)


def more_workers_are_worse(options: Mapping[str, Option]) -> float:
    """One worker is best; what is gained elsewhere is small."""
    return 1000 / (1 + 0.2 * (int(options["workers"]) - 1)) * (1.1 if options["pinned"] else 1.0)


def two_interact(options: Mapping[str, Option]) -> float:
    """Each of two changes alone is slower, both together are twice as fast."""
    fused, large = options["mode"] == "fused", int(options["batch"]) >= 128
    return 1000 * (2.0 if fused and large else 0.8 if fused or large else 1.0)


def nothing_gains(options: Mapping[str, Option]) -> float:
    """Every change costs a little."""
    changed = (options["workers"] != 1) + (options["pinned"] is True) + (options["batch"] != 32)
    return 1000 * 0.97**changed


def cliff(options: Mapping[str, Option]) -> float:
    """The larger the faster, until memory ends."""
    size = int(options["batch"]) * int(options["workers"])
    return 100 * math.log2(size) if size <= 512 else math.nan


def bowl(options: Mapping[str, Option]) -> float:
    """One best place among many: three workers, batches of 64, a graph, pinned, without copies."""
    return 1000 / (
        1
        + 0.15 * abs(math.log2(int(options["workers"])) - math.log2(3))
        + 0.12 * abs(math.log2(int(options["batch"])) - 6)
        + {"plain": 0.4, "fused": 0.15, "graph": 0.0}[str(options["mode"])]
        + 0.1 * (options["pinned"] is False)
        + 0.1 * (options["copy"] is True)
    )


LOOPS: Mapping[str, tuple[list[Lever], Speed]] = {
    "more workers are worse": ([WORKERS, PINNED, COPY], more_workers_are_worse),
    "two interact": ([BATCH, MODE], two_interact),
    "nothing gains": ([WORKERS, PINNED, BATCH], nothing_gains),
    "a cliff in memory": ([BATCH, WORKERS], cliff),
    "one place among many": ([WORKERS, BATCH, MODE, PINNED, COPY], bowl),
}
