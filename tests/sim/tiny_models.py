"""Models small enough to reason about by hand, and a program for one of them."""

import numpy as np
import torch

from hotloop.sim import Column, Model, Series, Substep
from hotloop.sim.program import Parts

N, STEPS = 60, 12
STAGE, AGE = "agents/people/stage", "agents/people/age"
CASES, TIES, MOOD = "environment/cases", "networks/ties", "environment/mood"
BETA = "initializer.transition_function.0.infect.learnable_args.beta"
WEEKS = "initializer.transition_function.0.infect.learnable_args.weeks"


def ring(size: int = N) -> np.ndarray:
    a = np.arange(size)
    forwards = np.stack((a, (a + 1) % size), 1)
    return np.concatenate((forwards, forwards[:, ::-1]))


class Infect(Substep):
    reads, writes = (STAGE, TIES), (STAGE, CASES)

    def observe(self, state):
        return {"pressure": state[TIES].sum_from((state[STAGE] == 1).int())}

    def transition(self, state, action):
        weeks = self.parameter("weeks").reshape(-1)
        today = weeks.index_select(0, (state.step_index // 7).clamp(max=len(weeks) - 1).view(1))
        risk = self.parameter("beta") * today * action["pressure"]
        newly = (state[STAGE] == 0) & (state.uniform(0, "people") < risk.detach())
        # Straight through: the draw decides, the risk carries the gradient.
        soft = newly + ((risk - risk.detach()) if risk.requires_grad else 0)
        return {STAGE: torch.where(newly, 1, state[STAGE]), CASES: soft.sum(-1)}


class Recover(Substep):
    reads, writes = (STAGE, MOOD), (STAGE, MOOD)

    def transition(self, state, action):
        well = (state[STAGE] == 1) & (state.uniform(1, "people") < 0.2)
        return {STAGE: torch.where(well, 2, state[STAGE]), MOOD: state[MOOD] + well.sum(-1)}


def sir(**changes) -> Model:
    given = {
        "substeps": (Infect(beta=0.4, weeks=torch.ones(3, 1)), Recover()),
        "populations": {
            "people": {
                "stage": Column((np.arange(N) % 10 == 0).astype(np.int64), torch.uint8, 0, 2),
                "age": np.arange(N) % 6,
            }
        },
        "sizes": {"people": N},
        "environment": {"cases": Series(), "mood": 0.0},
        "networks": {"ties": ring()},
        "num_steps_per_episode": STEPS,
    }
    return Model("sir", **{**given, **changes})


class Doubles:
    """A program for `growth`: doubles every agent's value in place, as fast as can be."""

    name = "doubling"

    def __init__(self, parts: Parts) -> None:
        self.value = parts.state["agents/cells/value"]
        self.total = parts.state["environment/total"]
        self.calls: list[tuple[int, int]] = []
        self.synced = 0
        self.closed = False
        self.fails_at = -1

    def advance(self, first_step: int, steps: int) -> None:
        self.calls.append((first_step, steps))
        for step in range(first_step, first_step + steps):
            if step == self.fails_at:
                raise KeyboardInterrupt
            self.value.mul_(2)
            self.total[..., step] = self.value.sum(-1)

    def columns_changed(self) -> None:
        self.synced += 1

    def counters(self) -> dict[str, float]:
        return {"active_agent_steps": 1.0, "edges": 4.0, "doublings": float(len(self.calls))}

    def close(self) -> None:
        self.closed = True


class Double(Substep):
    reads = writes = ("agents/cells/value", "environment/total")
    reads = ("agents/cells/value",)

    def transition(self, state, action):
        value = state["agents/cells/value"] * 2
        return {"agents/cells/value": value, "environment/total": value.sum(-1)}


class Rest(Substep):
    reads = writes = ("agents/cells/value",)

    def transition(self, state, action):
        return {"agents/cells/value": state["agents/cells/value"]}


def growth(*, program: bool = True) -> Model:
    return Model(
        "growth",
        substeps=(Double(), Rest()),
        populations={"cells": {"value": 1.0}},
        sizes={"cells": 4},
        environment={"total": Series()},
        num_steps_per_episode=10,
        program=Doubles if program else None,
    )
