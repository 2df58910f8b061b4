"""How long blocks are, and which arms there is time for.

A block covers two periods of the loop's rarest work that matters, twice what is in flight, and
enough time that a round's bookkeeping is negligible; its length is drawn anew in every round, from
once to twice the least, so that it is never in phase with a period. If the time does not suffice
for enough rounds of such blocks, they become shorter, and less informative arms are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hotloop.loop.arm import Arm
from hotloop.simplify.arm_names import ALL_FREE, aa_name, is_aa, is_only
from hotloop.simplify.arms import replaced_in
from hotloop.simplify.record import Record

# Rounds that an experiment should have. With fewer than LEAST_ROUNDS, blocks are no longer than
# they must be; with fewer than FEWEST_ROUNDS, arms and then iterations are left out.
ROUNDS, LEAST_ROUNDS, FEWEST_ROUNDS, LAST_ROUNDS = 40, 16, 10, 8
SHORTEST_BLOCK_NS, LONGEST_BLOCK_NS = 10_000_000, 1_000_000_000
# What the arm before left in the caches has an effect for so long: a loop of 1 ms over a population
# of 37,000 was 20% slower in the first 4 ms. It is at most a share of a block, and nothing of
# blocks so long that it makes no difference.
DRAIN_S, DRAIN_SHARE, LONG_BLOCK_NS = 0.010, 0.25, 1_000_000_000
# A block takes at least so many times what putting state back takes, and has at most so many calls.
SNAPSHOTS, MOST_CALLS = 10, 40_000
MEAN_LENGTH = 1.5  # of a block, in its least length


@dataclass(frozen=True)
class BlockPlan:
    """The length of blocks, and the arms that there is time for.

    length: the fewest iterations of a block; it has up to twice as many. arms: the arms that are
    compared. drain_s: time at the start of a block that is not timed.
    """

    length: int = 1
    arms: dict[str, Arm] = field(default_factory=dict)
    drain_s: float = 0.0


def plan_blocks(
    record: Record,
    arms: dict[str, Arm],
    iteration_ns: float,
    time_ns: float,
    rounds_of: Mapping[str, int] = MappingProxyType({}),
) -> BlockPlan:
    """Choose the length and the arms for rounds that fill `time_ns`.

    rounds_of: how many each arm has had already. Later blocks are about as long as the first: what
    is not timed after a switch would be most of short ones.
    """
    done = max(rounds_of.values(), default=0)
    each = max(time_ns, 1.0) / len(arms) / max(ROUNDS - done, LEAST_ROUNDS)
    block_ns = min(max(each, SHORTEST_BLOCK_NS), LONGEST_BLOCK_NS) / MEAN_LENGTH
    wanted = max(1, round(block_ns / iteration_ns))
    calls = sum(stage.calls_per_iteration for stage in record.stages)
    wanted = min(wanted, max(1, int(MOST_CALLS / max(calls, 1.0))))
    needed = max(
        2 * record.in_flight,
        record.drain_iterations,
        round(record.transient_ns / iteration_ns),
        round(SNAPSHOTS * record.snapshot_s * 1e9 / iteration_ns),
        1,
    )
    length, chosen = max(wanted, needed, 2 * record.period if record.period > 1 else 1), dict(arms)

    def rounds(of: int) -> float:
        fewest = min(rounds_of.get(name, 0) for name in chosen)
        return fewest + _rounds(of, record, chosen, iteration_ns, time_ns)

    # Rare work is pooled over arms, so that a block may hold less than two periods of it; fewer
    # rounds would cost more.
    while length > max(needed, record.period) and rounds(length) < LEAST_ROUNDS:
        length = max(needed, record.period, int(0.8 * length))
    for spare in _SPARE:
        if rounds(length) < FEWEST_ROUNDS:
            chosen = {name: arm for name, arm in chosen.items() if not spare(name)}
    least = max(1, 2 * record.in_flight, record.drain_iterations // 2)
    while length > least and rounds(length) < FEWEST_ROUNDS:
        length = max(least, int(0.8 * length))
    for spare in _LAST:
        if rounds(length) < LAST_ROUNDS:
            chosen = {name: arm for name, arm in chosen.items() if not spare(name)}
    return BlockPlan(length, chosen, _drain_s(length * iteration_ns))


# The arms that are left out first where time is short: those that matter least to the verdict.
_SPARE: tuple[Callable[[str], bool], ...] = (
    lambda name: is_aa(name) and name != aa_name(1),
    lambda name: name.startswith("delay ") and not name.endswith("#1"),
    lambda name: name.startswith("delay "),
)
_LAST: tuple[Callable[[str], bool], ...] = (
    lambda name: name.startswith("pad "),
    lambda name: is_only(name) or name == ALL_FREE,
)


def drain_of(record: Record, arm: Arm) -> int:
    """How many iterations of this arm are not timed after the switch to it."""
    replaced = replaced_in(arm)
    drain = record.drain_iterations if replaced else record.drain_base
    return max(drain, *(record.transients.get(name, 0) for name in replaced), 0)


def _drain_s(block_ns: float) -> float:
    """How long the caches of the arm before matter; 0 where that is negligible for a block."""
    return min(DRAIN_S, DRAIN_SHARE * block_ns * 1e-9) if block_ns < LONG_BLOCK_NS else 0.0


def _rounds(
    length: int, record: Record, arms: dict[str, Arm], iteration_ns: float, time_ns: float
) -> float:
    drain_ns = max(record.drain_base * iteration_ns, _drain_s(length * iteration_ns) * 1e9)
    block_ns = MEAN_LENGTH * length * iteration_ns + drain_ns + record.snapshot_s * 1e9
    return time_ns / (block_ns * len(arms))
