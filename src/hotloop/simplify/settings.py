"""The settings of an experiment: how long, how exact, and which gains."""

import math
from dataclasses import dataclass

from hotloop.errors import SettingError, expect_positive


@dataclass(frozen=True)
class SimplifySettings:
    """Which gains to look for, and for how long."""

    budget: float = 30.0
    """Time for the whole experiment, in seconds."""
    worth: float = 0.03
    """The smallest gain worth knowing of, as a share of the loop's time."""
    faster: tuple[float, ...] = (2.0,)
    """How many times faster a stage is tried, besides free; several numbers draw a curve."""
    aa_pairs: int = 3
    """How many arms are the same as the baseline, to see what the method makes of no difference."""
    looks: int = 4
    """How often arms may be dropped."""
    in_flight: int | None = None
    """Items between the first stage and the loop; default: what the loop says, or what is seen."""
    tape_memory: float = 0.1
    """The share of the free memory that recorded outputs may take."""
    seed: int = 0
    """Of the order of the arms, of the lengths of the blocks and of the resampling."""
    price_per_hour: float | None = None
    """What the machine costs an hour; overrides the loop's own."""

    def __post_init__(self) -> None:
        for name in ("budget", "worth", "aa_pairs", "looks", "in_flight", "price_per_hour"):
            expect_positive(name.replace("_", " "), getattr(self, name))
        if not 0 < self.tape_memory <= 1:
            raise SettingError(
                f"tape memory: expected a share of the free memory, more than 0 and at most 1, "
                f"got {self.tape_memory}"
            )
        object.__setattr__(self, "faster", tuple(float(k) for k in self.faster))
        for k in self.faster:
            if not (math.isfinite(k) and k > 1):
                raise SettingError(f"faster: expected numbers above 1, such as 2, got {k:g}")
        if len(set(self.faster)) < len(self.faster):
            raise SettingError(f"faster: a number stands twice in {self.faster}")
