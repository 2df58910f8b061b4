"""Joins what was counted with what was timed: costs by stage, operation, module, and coverage.

Counts and times are of different iterations of one loop; both know the stages, the operation, the
part of the model and the pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from hotloop.benchmark.timeline import running_ns, time_and_calls
from hotloop.benchmark.work import Operation
from hotloop.profile.call_site import CallSite
from hotloop.profile.model_costs import (
    Cost,
    ModuleCost,
    OperationCost,
    StageCost,
    UncountedOperation,
)
from hotloop.profile.origins import Origin
from hotloop.profile.parts import OUTSIDE
from hotloop.profile.stacks import REST
from hotloop.profile.trace import Slice, Spent
from hotloop.profile.turns import Turns
from hotloop.profile.under_way import innermost

MOST_ROWS = 40
K = TypeVar("K", bound=Hashable)


class Counts(NamedTuple):
    """What was counted in so many iterations; the origin of each operation is an `Origin`."""

    operations: Sequence[Operation]
    iterations: int


class Join:
    """Costs of an iteration. names: of the stages, by number; main_thread: that runs the loop."""

    def __init__(
        self,
        counts: Counts,
        spent: Mapping[Slice, Spent],
        turns: Turns,
        names: Sequence[str],
        main_thread: int,
    ) -> None:
        self.on_card = any(each.device_ns for each in spent.values())
        self._counts, self._turns, self._spent = counts, turns, spent
        self._names, self._main_thread = names, main_thread
        self._is_counted = {each.name: each.flops is not None for each in counts.operations}

    def whole(self) -> Cost:
        """All operations, and the time of an iteration without the profiler."""
        (all_of_it,) = self._costs(lambda _each, _origin: [()], lambda _at: [()]).values() or [
            Cost(0, 0, 0, 0)
        ]
        return Cost(
            all_of_it.calls, all_of_it.flops, all_of_it.moved_bytes, self._turns.ns_per_iteration
        )

    def call_coverage(self) -> float:
        """The calls of operations that have a rule, over all."""
        has_rule = [each.flops is not None for each in self._counts.operations]
        return sum(has_rule) / len(has_rule) if has_rule else 0.0

    def time_coverage(self) -> float:
        """The time of operations that have a rule, over that of all."""
        took = {True: 0.0, False: 0.0}
        for at, each in self._spent.items():
            if at.operation in self._is_counted:
                took[self._is_counted[at.operation]] += self._time_ns(each)
        return took[True] / sum(took.values()) if any(took.values()) else 0.0

    def operations(self) -> list[OperationCost]:
        """By stage and operation, the one that takes the most first."""
        costs = self._costs(
            lambda each, origin: [(innermost(origin.stages), each.name)],
            lambda at: [(innermost(at.stages), at.operation)],
        )
        return [
            OperationCost(stage, name, self._is_counted[name], cost)
            for (stage, name), cost in _slowest(costs)
            if name in self._is_counted
        ][:MOST_ROWS]

    def modules(self) -> list[ModuleCost]:
        """By stage, module and pass, the one that takes the most first."""
        costs = self._costs(
            lambda _each, origin: [(innermost(origin.stages), origin.part, origin.pass_name)],
            # Python between operations is the module's own, or else no part's.
            lambda at: (
                [(innermost(at.stages), at.part, at.pass_name)]
                if at.operation or at.part != OUTSIDE
                else []
            ),
        )
        return [
            ModuleCost(stage, part.path, part.kind, pass_name, cost)
            for (stage, part, pass_name), cost in _slowest(costs)
        ][:MOST_ROWS]

    def stages(self) -> list[StageCost]:
        """By stage, those that compute, with their times without the profiler."""
        took = self._stage_times()
        costs = self._costs(
            lambda _each, origin: {*origin.stages} or {REST}, lambda at: {*at.stages} or {REST}
        )
        found = [
            StageCost(
                name,
                cost if self.on_card else replace(cost, time_ns=took.get(name, 0.0)),
                self._outside(name),
            )
            for name, cost in costs.items()
            if cost.calls
        ]
        return sorted(found, key=lambda each: -each.cost.time_ns)

    def uncounted(self) -> list[UncountedOperation]:
        """The operations without a rule, by where they are called."""

        def key(each: Operation, origin: Origin) -> Slice:
            return Slice(origin.stages, each.name, origin.part, origin.pass_name)

        costs = self._costs(lambda each, origin: [key(each, origin)], lambda at: [at])
        moved: dict[tuple[Slice, CallSite], list[float]] = defaultdict(list)
        for each in self._counts.operations:
            if each.flops is None:
                moved[key(each, each.origin), each.origin.site].append(each.moved_bytes)
        found = []
        for (at, site), sizes in moved.items():
            calls = len(sizes) / self._counts.iterations
            # One line may call it more often than another: times are known for both together.
            time_ns = costs[at].time_ns * calls / costs[at].calls
            cost = Cost(calls, 0.0, sum(sizes) / self._counts.iterations, time_ns)
            stage = innermost(at.stages)
            found.append(
                UncountedOperation(at.operation, stage, at.part.path, at.pass_name, *site, cost)
            )
        return sorted(found, key=lambda each: -each.cost.time_ns)[:MOST_ROWS]

    def _costs(
        self,
        of_count: Callable[[Operation, Origin], Iterable[K]],
        of_time: Callable[[Slice], Iterable[K]],
    ) -> dict[K, Cost]:
        """What was counted and how long it took, by keys that both have."""
        sums: dict[K, np.ndarray] = defaultdict(lambda: np.zeros(4))
        for each in self._counts.operations:
            for key in of_count(each, each.origin):
                sums[key][:3] += (1, each.flops or 0.0, each.moved_bytes)
        for total in sums.values():
            total /= self._counts.iterations
        for at, spent in self._spent.items():
            for key in of_time(at):
                sums[key][3] += self._time_ns(spent) / self._turns.seen_iterations
        return {key: Cost(*map(float, total)) for key, total in sums.items()}

    def _time_ns(self, spent: Spent) -> float:
        return spent.device_ns if self.on_card else spent.host_ns

    def _outside(self, stage: str) -> float | None:
        """The share of a stage's traced time that is in no operation."""
        took = Counter[bool]()
        for at, each in self._spent.items():
            if stage in (at.stages or (REST,)):
                took[bool(at.operation)] += round(each.host_ns)
        return took[False] / sum(took.values()) if sum(took.values()) else None

    def _stage_times(self) -> dict[str, float]:
        """Of an iteration without the profiler, by stage; what is in none is the rest."""
        events = [event for block in self._turns.plain for event in block.events]
        iterations = sum(len(block.duration_ns) for block in self._turns.plain)
        time_ns, _calls = time_and_calls(events, len(self._names))
        took = dict(zip(self._names, time_ns / iterations, strict=True))
        own = [event._replace(stage=0) for event in events if event.lane == self._main_thread]
        (in_stages,) = running_ns(own, 1) / iterations
        took[REST] = max(self._turns.ns_per_iteration - in_stages, 0.0)
        return {name: float(value) for name, value in took.items()}


def _slowest(costs: Mapping[K, Cost]) -> list[tuple[K, Cost]]:
    return sorted(costs.items(), key=lambda item: -item[1].time_ns)
