"""Boids as a model: birds that keep apart, fly as their neighbours do, and stay together.

The model says what a bird hears of one neighbour and what it makes of the sums; the engine finds
the neighbours (`hotloop.sim.grid`). `Flock` is the model's meaning, on tensors of any device;
`FlockProgram` is the same in compiled loops, equal to the last bit.
Source: Reynolds, "Flocks, herds, and schools: a distributed behavioral model", SIGGRAPH 1987.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import expect_positive
from hotloop.models.boids.flock import Flock
from hotloop.models.boids.program import FlockProgram
from hotloop.models.boids.settings import BoidsSettings, box_for
from hotloop.sim import draws
from hotloop.sim.model import Column, Model, Series
from hotloop.sim.program import Parts, Program


def model(
    num_agents: int = 10_000,
    settings: BoidsSettings | None = None,
    *,
    num_steps: int = 100,
    compiled: bool = True,
) -> Model:
    """Make the boids model: birds at random positions, in random directions, at the mean speed.

    settings: None is a square box in which a bird sees 20 others on average at first.
    compiled: see `Flock`; it makes no difference where the program replaces the substep.
    `environment["polarisation"]` is the series of how much the flock agrees.

    Raises: SettingError for a box that is too small for the radius.
    """
    expect_positive("num_agents", num_agents)
    settings = settings or box_for(num_agents)
    settings.space(num_agents)  # raises for a box that is too small
    speed = (settings.min_speed + settings.max_speed) / 2

    def position(line: int, side: float) -> Column:
        # Rounding to float32 must not put a bird onto the far side.
        least = np.float32(0)
        last = float(np.nextafter(np.float32(side), least) if settings.periodic else side)

        def draw(_data: object, state: Any) -> Tensor:
            return (_drawn(state, line) * side).to(torch.float32).clamp(max=last)

        return Column(draw, torch.float32, low=0.0, high=last)

    def velocity(part: Callable[[Tensor], Tensor]) -> Column:
        def draw(_data: object, state: Any) -> Tensor:
            return (part(_drawn(state, 2) * 2 * math.pi) * speed).to(torch.float32)

        return Column(draw, torch.float32)

    return Model(
        name="boids",
        substeps=[Flock(settings, compiled=compiled)],
        populations={
            "birds": {
                "x": position(0, settings.width),
                "y": position(1, settings.height),
                "vx": velocity(torch.cos),
                "vy": velocity(torch.sin),
            }
        },
        sizes={"birds": num_agents},
        environment={"polarisation": Series(torch.float32)},
        num_steps_per_episode=num_steps,
        program=_program,
    )


def _drawn(state: Any, line: int) -> Tensor:
    """Draw uniformly for the start, with other ids for each of x, y and direction."""
    size = state.size("birds")
    ids = torch.arange(size, device=state.device) + line * size
    return draws.uniform(state.seeds, 0, draws.INITIAL, ids)


def _program(parts: Parts) -> Program | None:
    flock = parts.substeps[0]
    if not isinstance(flock, Flock) or parts.settings.device.type != "cpu":
        return None
    return FlockProgram(flock, parts)
