"""What an experiment knows of a stage from its recording, and of the code between the stages."""

from dataclasses import dataclass


@dataclass
class StageFacts:
    """The facts of one stage, from the recording."""

    name: str
    index: int
    kind: str
    effect: str
    inside: str | None
    calls_per_iteration: float
    ns_per_call: float
    tape_ns: list[int]  # the recorded durations that replays stand for
    ns_per_iteration: float
    share: float
    cpu_share: float | None
    beside_main: bool  # runs on another thread, task or process than the loop's own
    lanes: list[int]
    outputs: int
    modes_ns: tuple[float, float] | None
    bytes_per_call: float | None
    not_replaced: str | None  # why the stage cannot be replaced, or None if it can
    is_whole: bool = False  # its calls are all calls of the stages inside it

    @property
    def replaceable(self) -> bool:
        """Whether recorded outputs may stand in for its calls."""
        return self.not_replaced is None


@dataclass(frozen=True)
class Place:
    """Code that runs between the stages: a function and all that it calls.

    share: of the loop's time. line: with most of it. calls_stages: whether the function also calls
    stages; then only what it does besides is meant. stage: the function as `--stage` takes it,
    module:function; None where no name leads to it alone.
    """

    share: float
    function: str
    file: str
    line: int
    calls_stages: bool
    stage: str | None
