"""Whether double buffering pays here, found out by doing it both ways for a moment.

Stepping one group of envs while the policy computes for another hides the shorter of the two; but
the policy is called once for each group, so that a policy whose cost hardly depends on the batch
costs twice as much. Which weighs more depends on the machine, so it is measured, not believed.
"""

from dataclasses import dataclass, field
from statistics import median

TRIAL_S = 0.4
MIN_WINDOWS = 4  # of each way
WINDOW_STEPS = 32  # between two windows all groups are waited for, which only buffering suffers
WORTH = 0.02  # it has to be faster by this share, or it is not worth a second call of the policy


@dataclass
class BufferingTrial:
    """Both ways in turn, a b b a, until there is enough to compare.

    seconds: a step's, by way (False: all envs at once; True: in groups).
    """

    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    spent_s: float = 0.0

    @property
    def way(self) -> bool:
        """Which way the next window goes."""
        windows = sum(map(len, self.seconds.values()))
        return windows % 4 in (1, 2)

    @property
    def over(self) -> bool:
        """Whether there is enough to compare; both ways have then had equally many windows."""
        fewest, most = sorted(map(len, self.seconds.values()))
        return self.spent_s >= TRIAL_S and fewest >= MIN_WINDOWS and fewest == most

    def note(self, seconds: float, steps: int) -> None:
        """Take down a window of so many steps in the present way."""
        self.spent_s += seconds
        self.seconds[self.way].append(seconds / steps)

    def verdict(self) -> tuple[bool, str]:
        """Whether it pays, and a sentence that says why."""
        whole, groups = median(self.seconds[False]), median(self.seconds[True])
        pays = groups < (1 - WORTH) * whole
        return pays, (
            f"double buffering {'pays' if pays else 'does not pay'} here: a step takes "
            f"{groups * 1e3:.3g} ms with it, {whole * 1e3:.3g} ms without "
            f"(medians of {len(self.seconds[True])} windows each)"
        )
