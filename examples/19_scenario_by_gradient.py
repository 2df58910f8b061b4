"""You will see how much isolation a town should ask for in each week, found by gradient.

    python examples/19_scenario_by_gradient.py

Infections cost, and so does isolation, more than in proportion. The daily counts of a run have a
gradient by the controls of each week, so an optimizer finds the plan; the mean over replicates
takes out most of the luck of single runs.
"""

import torch

from hotloop.models.epidemic import covid
from hotloop.sim import Executor, LoadPopulation

AGENTS, WEEKS, REPLICATES, STEPS = 2_000, 4, 8, 16
ISOLATING, INFECTED = "environment/isolating", "environment/daily_infected"


def infections(runner, plan: torch.Tensor) -> torch.Tensor:
    """Of 1,000 agents, the mean over replicates, (); plan: (WEEKS,) from 0 to 1."""
    runner.reset()
    for level in plan:
        runner.set_value(ISOLATING, level)
        runner.step(7)
    return runner.state[INFECTED].sum(-1).mean() * 1000 / AGENTS


def cost(plan: torch.Tensor) -> torch.Tensor:
    return 120 * (plan**2).sum()


def main() -> None:
    settings = covid.CovidSettings(num_steps=7 * WEEKS, r_by_week=(5.0,), willingness=0.7)
    town = LoadPopulation(AGENTS, both_ways=True)
    runner = Executor(covid.model(settings), town, replicates=REPLICATES, device="cpu").init()
    free = torch.zeros(WEEKS, requires_grad=True)
    optimizer = torch.optim.Adam([free], lr=0.5)
    for step in range(STEPS):
        plan = torch.sigmoid(free)
        infected = infections(runner, plan)
        loss = infected + cost(plan)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step:2}: {infected.item():4.0f} infected + cost {cost(plan).item():3.0f}")
    print("\n            infected of 1,000   cost   sum   isolation asked for, week by week")
    for name, plan in (
        ("nothing", torch.zeros(WEEKS)),
        ("everything", torch.ones(WEEKS)),
        ("found", torch.sigmoid(free).detach()),
    ):
        infected, paid = infections(runner, plan).item(), cost(plan).item()
        levels = "  ".join(f"{level:.2f}" for level in plan.tolist())
        print(f"{name:10} {infected:18.0f} {paid:6.0f} {infected + paid:5.0f}   {levels}")


if __name__ == "__main__":
    main()
