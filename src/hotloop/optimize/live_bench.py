"""Choices of a loop of this process: its levers are set between two of its iterations."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from hotloop.errors import StateError
from hotloop.loop.arm import OFF, Arm
from hotloop.loop.conduct import Block, Measurement, Request, drive
from hotloop.loop.control import SharedControl
from hotloop.loop.lever import same_option
from hotloop.loop.loop import Loop
from hotloop.loop.state import Snapshot
from hotloop.optimize.bench import Stretch, TrialError
from hotloop.optimize.memory_guard import limited_memory
from hotloop.optimize.same_result import CHECK_ITERATIONS, Print, difference, prints_of, unlike
from hotloop.optimize.space import Choice, Space

TURN_S = 0.05  # about


@dataclass
class LiveBench:
    """Runs choices in turns on one loop, whose every lever has an `apply`.

    What needs more memory than there is fails alone: this process may allocate only what is free.
    """

    loop: Loop
    space: Space
    control: SharedControl
    places: int = 8
    same_work: bool = True
    usual_noise: float = 0.03
    warm_rounds: int = 3
    least_rounds: int = 1
    final_rounds: int = 6
    judging_share: float = 0.25
    free: Collection[str] = ()  # all choices cost the same

    def __post_init__(self) -> None:
        self._set_to = self.space.start
        self._before: Snapshot | None = None
        self._prints: list[Print] | None = None
        self.unchecked = ""
        if not self.loop.state:
            self.unchecked = "the loop declares no state to start again from"
            return
        try:
            self._before = Snapshot(self.loop.state)
        except StateError:
            self.unchecked = "the loop's state cannot be put back, to start again from it"

    def begin(self, choices: Sequence[Choice]) -> None:
        """A loop of this process is set to one choice at a time."""

    def open(self, choice: Choice, *, checked: bool = False) -> "LiveEntrant":
        """Set the loop, let it run, and check what it computes. Raises: TrialError."""
        entrant = LiveEntrant(self, choice)
        entrant.turn()
        kept = self.space.keeps_result(choice)
        if not checked or self._before is None or kept is False:
            return entrant
        if self._prints is None:
            self._prints = self._computed(self.space.start)
            self.unchecked = unlike(self._prints, self._computed(self.space.start))
        if not self.unchecked and self.space.changes(choice):
            found = difference(self._prints, self._computed(choice), kept)
            if found is not None:
                raise TrialError(f"it changes what the loop computes: {found}")
        return entrant

    def next_round(self) -> None:
        """Turns share nothing here."""

    def measure(self, choice: Choice, iterations: int | None) -> Block:
        """Run a turn of a choice: so many iterations, or as many as take `TURN_S`.

        Raises: TrialError.
        """
        seconds = TURN_S if iterations is None else None
        arm = Arm("steady", rest=OFF)
        return self._run(choice, Request(arm, iterations=iterations, seconds=seconds, drain=1))

    def set_to(self, choice: Choice) -> None:
        """Set the loop to a choice, and leave it so."""
        self._apply(choice)

    def _run(self, choice: Choice, request: Request) -> Block:
        def once() -> Measurement[Block]:
            return (yield request)

        try:
            with limited_memory():
                self._apply(choice)
                return drive(self.loop, once(), self.control)
        except MemoryError as error:
            raise TrialError(f"it needs more memory than there is ({error})") from None
        except Exception as error:
            raise TrialError(f"it raised {type(error).__name__}: {error}") from None

    def _apply(self, choice: Choice, *, may_be: Choice | None = None) -> None:
        """Set the levers that differ from what the loop is set to, or from what it may be set to.

        may_be: a choice in force when the state was saved that was put back; a lever may have its
        option in the state, or elsewhere.
        """
        sets = [self.space.options(each) for each in (self._set_to, may_be or self._set_to)]
        after = self.space.options(choice)
        self._set_to = choice
        for name, lever in self.space.levers.items():
            if not all(same_option(before[name], after[name]) for before in sets):
                assert lever.apply is not None
                lever.apply(after[name])

    def _computed(self, choice: Choice) -> list[Print]:
        """What the loop computes from where it was before the search."""
        assert self._before is not None
        now, set_to = Snapshot(self.loop.state), self._set_to
        self._before.restore()
        try:
            self._apply(choice, may_be=self.space.start)
            self._run(choice, Request(Arm("steady", rest=OFF), iterations=CHECK_ITERATIONS))
            return prints_of(self.loop)
        finally:
            now.restore()
            self._apply(choice, may_be=set_to)


@dataclass
class LiveEntrant:
    """A choice that can run.

    iterations: of each turn but the first, which tells how many; of turns that end at a time, those
    with a long iteration would be longer, and count too little.
    """

    bench: LiveBench
    choice: Choice
    iterations: int | None = None
    stretch: Stretch = field(default_factory=Stretch)

    @property
    def granularity(self) -> float:
        """How much its mean rate may be off by where its turns have begun and ended."""
        return self.stretch.granularity

    def turn(self) -> float:
        """Units a second over a turn. Raises: TrialError."""
        block = self.bench.measure(self.choice, self.iterations)
        total_ns = sum(block.duration_ns)
        self.iterations = self.iterations or len(block.duration_ns)
        self.stretch.add(len(block.duration_ns), total_ns, max(block.duration_ns))
        return sum(block.units) / (total_ns * 1e-9)

    def close(self) -> None:
        """Nothing is held."""
