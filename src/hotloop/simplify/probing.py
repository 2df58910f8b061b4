"""How much of a block's time went into measuring the calls of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hotloop.benchmark.call_cost import MOST_NS, CallCost
from hotloop.loop.arm import SUBSTITUTES, Arm, Kind
from hotloop.loop.cost import ProbeCost
from hotloop.simplify.stage_facts import StageFacts

# Calls that say where iterations begin are taken to cost as much as the others.
LEAST_ERROR = 0.15


def in_the_loop(alone: ProbeCost, here: CallCost | None) -> ProbeCost:
    """What measuring costs: `alone` it is the least, and what is not certain is not added."""
    if here is None:
        return alone
    cost = replace(alone, iteration_ns=here.end_ns)
    call_ns = here.call_ns
    if not call_ns.low > alone.timed_ns:
        return cost
    return replace(
        cost,
        more_ns=min(call_ns.value, MOST_NS) - alone.timed_ns,
        error_share=min(alone.error_share, max(LEAST_ERROR, call_ns.half_width / call_ns.value)),
    )


@dataclass(frozen=True)
class Probing:
    """The cost of measuring these stages. serial: whether nothing runs beside the loop."""

    stages: Sequence[StageFacts]
    cost: ProbeCost
    serial: bool

    def time_ns(self, arm: Arm, iterations: int, calls: np.ndarray, took_ns: np.ndarray) -> float:
        """What it cost in a block of an arm: calls, (stages,), which took so long, (stages,)."""
        kinds = [arm.mode(stage.name).kind for stage in self.stages]
        # A call of a stage within a whole is also noted as one of that, and costs as much as one.
        wholes = {stage.name for stage in self.stages if stage.is_whole}
        counted = calls * [stage.inside not in wholes for stage in self.stages]
        replayed = [kind in SUBSTITUTES for kind in kinds]
        spent = counted * np.where(replayed, self.cost.replayed_ns, self.cost.timed_ns)
        if self.serial:
            # A replay that makes something of an output, such as its gradients, takes longer.
            free = [kind is Kind.FREE for kind in kinds]
            spent = np.where(free, np.maximum(spent, took_ns), spent)
        spent = spent + counted * self.cost.more_ns
        return float(spent.sum()) + iterations * self.cost.iteration_ns
