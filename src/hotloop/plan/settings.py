"""What a plan assumes beside the measured points: prices, targets, the learner, the network."""

from dataclasses import dataclass

from hotloop.errors import SettingError, expect_positive, expect_whole


@dataclass(frozen=True)
class PlanSettings:
    """What stands beside the envs, and what is wanted."""

    policy_s: float = 0.0
    """Seconds that the policy takes for one step of all envs; 0: as in the points."""
    step_spread: float = 0.0
    """Standard deviation of a step's duration over its mean; 0: all steps last as long."""
    learner_sps: float | None = None
    """Env steps/s that the learner takes if it waits for nothing. Where the policy is at the head,
    envs and learner take turns; with fragments they work at the same time."""
    step_bytes: float | None = None
    """Bytes of an env step on its way to the head."""
    bandwidth_bytes_per_s: float | None = None
    """What the head's network takes in, in bytes/s."""
    price_per_hour: float | None = None
    """Price of a node for an hour, in the currency of your choice."""
    target_sps: float | None = None
    """Env steps/s that are wanted: the smallest cluster that reaches them is searched for."""
    batch_fragments: int = 1
    """With learner_sps: fragments of an update, for the lag of a learner beside its actors."""
    queue_fragments: int = 1
    """With learner_sps: finished fragments of a node that may wait; then its actor waits, too."""

    @property
    def carry_s(self) -> float:
        """Seconds of the network for one env step."""
        if self.step_bytes is None or self.bandwidth_bytes_per_s is None:
            return 0.0
        return self.step_bytes / self.bandwidth_bytes_per_s

    def __post_init__(self) -> None:
        names = ("learner_sps", "step_bytes", "bandwidth_bytes_per_s", "price_per_hour")
        for name in (*names, "target_sps"):
            expect_positive(name, getattr(self, name))
        for name in ("policy_s", "step_spread"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise SettingError(f"{name}: expected a number of 0 or more, got {value}")
        for name in ("batch_fragments", "queue_fragments"):
            expect_whole(name, getattr(self, name), 1)
            if self.learner_sps is None and getattr(self, name) != 1:
                raise SettingError(f"{name}: expected learner_sps beside it, which was not given")
        if (self.step_bytes is None) != (self.bandwidth_bytes_per_s is None):
            raise SettingError(
                "step_bytes, bandwidth_bytes_per_s: expected both or neither; together they say "
                "how many env steps the network carries"
            )
