"""The settings of a search."""

from dataclasses import dataclass

from hotloop.errors import SettingError, expect_positive, expect_whole

LEAST_BUDGET_S = 5.0


@dataclass(frozen=True)
class OptimizeSettings:
    """How long to search, and what may be changed.

    Raises: SettingError for a value out of range.
    """

    budget: float = 120.0
    """Time for the whole search, in seconds."""
    allow_learning_changes: bool = False
    """Also try what changes learning, such as the batch size; judged by the time to the target."""
    advice: bool = True
    """Also look for common faults in the code of a loop that is not hotloop's own."""
    worth: float = 0.02
    """A gain below this share of the time is not worth another setting."""
    seed: int = 0
    """Of what is proposed, and of the order of the turns."""

    def __post_init__(self) -> None:
        expect_positive("worth", self.worth)
        expect_whole("seed", self.seed, 0)
        if not LEAST_BUDGET_S <= self.budget < float("inf"):
            raise SettingError(
                f"budget: expected {LEAST_BUDGET_S:.0f} seconds or more, got {self.budget}"
            )
