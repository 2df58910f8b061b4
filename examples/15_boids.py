"""You will see birds in random directions become flocks, and a spatial message of your own.

    python examples/15_boids.py

The map shows where a part of the birds fly. The model says what a bird hears of one neighbour and
what it makes of the sums; the engine's uniform grid finds the neighbours. The same grid answers
other questions: here, which bird has most others behind it.
"""

import numpy as np
import torch

from hotloop.models import boids
from hotloop.sim import Executor
from hotloop.sim.grid import Message

BIRDS, STEPS, WIDE, HIGH = 700, 250, 72, 16
ARROWS = "→↗↑↖←↙↓↘"


def main() -> None:
    settings = boids.BoidsSettings(width=360.0, height=160.0, radius=12.0, cohesion=0.02)
    runner = Executor(boids.model(BIRDS, settings, num_steps=STEPS), device="cpu").init()
    draw(runner, settings, "at first")
    runner.step(STEPS)
    draw(runner, settings, f"after {STEPS} steps")
    order = runner.state["environment/polarisation"]
    for step in (0, 50, 100, 150, STEPS - 1):
        print(f"step {step:3}  polarisation {order[step]:.2f}  {'#' * int(60 * order[step])}")
    lead(runner, settings)


def draw(runner, settings: boids.BoidsSettings, when: str) -> None:
    x, y, vx, vy = (runner.state[path].numpy() for path in boids.PATHS)
    rows = np.full((HIGH, WIDE), " ")
    place = (y / settings.height * HIGH).astype(int), (x / settings.width * WIDE).astype(int)
    rows[place] = np.array(list(ARROWS))[np.round(np.arctan2(vy, vx) / (np.pi / 4)).astype(int) % 8]
    print(f"{when}:", *("|" + "".join(row) + "|" for row in rows[::-1]), sep="\n")


def hear(dx, dy, d2, agents, i, _others, _k, params):
    """1 for a neighbour that lies behind: against the bird's velocity, lines 2 and 3."""
    return ((dx * agents[2, i] + dy * agents[3, i] < params[0]) * (d2 * 0 + 1),)


def lead(runner, settings: boids.BoidsSettings) -> None:
    grid = settings.grid(BIRDS)
    grid.load(runner.state[path].numpy() for path in boids.PATHS)
    neighbours, behind = grid.sums(message := Message(hear, {"behind": 1.0}), (0.0,))
    most = int(torch.from_numpy(behind).argmax())
    count = behind[most] * message.quanta[0]
    print(f"bird {most} leads: {count:.0f} of its {neighbours[most]} neighbours are behind it")


if __name__ == "__main__":
    main()
