"""You will see an epidemic in a small world of 5,000 people, written as two substeps.

    python examples/14_sir.py

Everybody knows their neighbours on a ring, and a tenth of the ties lead anywhere instead.
"""

import numpy as np
import torch

from hotloop.sim import Executor, Model, Series, Substep

N, NEIGHBOURS = 5_000, 6
STAGE, FRIENDS, CASES = "agents/people/stage", "networks/friends", "environment/cases"


def small_world(rng: np.random.Generator, size: int = N) -> np.ndarray:
    a = np.repeat(np.arange(size), NEIGHBOURS // 2)
    b = (a + np.tile(np.arange(1, NEIGHBOURS // 2 + 1), size)) % size
    b = np.where(rng.random(len(b)) < 0.1, rng.integers(0, size, len(b)), b)
    return np.concatenate((np.stack((a, b), 1), np.stack((b, a), 1)))


class Infect(Substep):
    """Whoever has sick friends may fall sick."""

    reads, writes = (STAGE, FRIENDS), (STAGE, CASES)

    def observe(self, state):
        return {"sick_friends": state[FRIENDS].sum_from(state[STAGE] == 1)}

    def transition(self, state, action):
        risk = 1 - (1 - self.parameter("beta")) ** action["sick_friends"]
        newly = (state[STAGE] == 0) & (state.uniform(0, "people") < risk)
        return {STAGE: torch.where(newly, 1, state[STAGE]), CASES: newly.sum(-1)}


class Recover(Substep):
    """The sick get well."""

    reads, writes = (STAGE,), (STAGE,)

    def transition(self, state, _action):
        well = (state[STAGE] == 1) & (state.uniform(1, "people") < self.parameter("gamma"))
        return {STAGE: torch.where(well, 2, state[STAGE])}


MODEL = Model(
    "sir",
    substeps=(Infect(beta=0.09), Recover(gamma=0.1)),
    populations={"people": {"stage": (np.arange(N) % 500 == 0).astype(np.uint8)}},
    sizes={"people": N},
    environment={"cases": Series()},
    networks={"friends": small_world(np.random.default_rng(0))},
)
if __name__ == "__main__":
    cases = Executor(MODEL, replicates=8).execute().state_trajectory[-1][-1][CASES].mean(0)
    for day in range(0, 100, 5):
        print(f"day {day:2}  {cases[day]:4.0f} new cases  {'#' * int(cases[day] / 2)}")
