"""Whether double buffering pays here, measured with it and without it for a moment.

Stepping one group of envs while the policy computes for another hides the shorter of the two; but
the policy is called once for each group, so that a policy whose cost hardly depends on the batch
costs twice as much. Which weighs more depends on the machine, so it is measured.
"""

from dataclasses import dataclass, field

import numpy as np

from hotloop.loop.race import as_fast, ratio_of

TRIAL_S = 0.4
MIN_WINDOWS = 4  # with it, and as many without
WINDOW_STEPS = 32  # between two windows all groups are waited for, which only buffering suffers
WORTH = 0.02  # it has to be faster by this share, or it is not worth a second call of the policy


@dataclass
class BufferingTrial:
    """Windows of steps without and with double buffering in turn (a b b a).

    seconds: of a step in each window, by whether it was with double buffering.
    """

    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    spent_s: float = 0.0

    @property
    def buffered(self) -> bool:
        """Whether the next window is one with double buffering."""
        windows = sum(map(len, self.seconds.values()))
        return windows % 4 in (1, 2)

    @property
    def over(self) -> bool:
        """Whether there is enough to compare: as many windows with it as without."""
        fewest, most = sorted(map(len, self.seconds.values()))
        return self.spent_s >= TRIAL_S and fewest >= MIN_WINDOWS and fewest == most

    def note(self, seconds: float, steps: int) -> None:
        """Note the time of the window that was next, of so many steps."""
        self.spent_s += seconds
        self.seconds[self.buffered].append(seconds / steps)

    def verdict(self) -> tuple[bool, str]:
        """Whether it pays, and a sentence that says why.

        It pays where it is proved faster by `WORTH`: where the two cannot be told apart, one call
        of the policy is cheaper.
        """
        whole, groups = np.array(self.seconds[False]), np.array(self.seconds[True])
        rates = 1 / np.stack((whole, groups), axis=1)
        pays = 0 not in as_fast(rates, WORTH)
        ratio = ratio_of(rates, 1, 0)
        return pays, (
            f"double buffering {'pays' if pays else 'does not pay'} here: a step takes "
            f"{groups.mean() * 1e3:.3g} ms with it, {whole.mean() * 1e3:.3g} ms without "
            f"(means of {len(groups)} windows each; {ratio.value:.3g} times as fast, "
            f"{ratio.low:.3g} to {ratio.high:.3g})"
        )
