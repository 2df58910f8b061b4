"""Settings of boids, and what follows from them: the message of one neighbour, and the grid."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import SettingError, expect_positive
from hotloop.models.boids.kernels import hear, rows_part
from hotloop.sim.grid import Message, UniformGrid, space_of
from hotloop.sim.grid_kernels import Space

COLUMNS = ("x", "y", "vx", "vy")


@dataclass(frozen=True)
class BoidsSettings:
    """The box, how far a bird sees, and how strongly it steers; the unit of time is a step.

    Raises: SettingError for a value out of range.
    """

    width: float
    """Of the box, in the unit of all lengths."""
    height: float
    """Of the box."""
    periodic: bool = True
    """Whether a bird that leaves on one side comes in on the other; else it turns at the wall."""
    radius: float = 10.0
    """How far a bird sees others."""
    separation_radius: float = 4.0
    """Within which it is pushed away from each."""
    softening: float = 0.5
    """Keeps the push finite: it is d / (d² + softening²) at distance d."""
    cohesion: float = 0.005
    """Share of the way to the neighbours' centre that is added to the velocity."""
    alignment: float = 0.1
    """Share of the difference to the neighbours' mean velocity that is added."""
    separation: float = 0.25
    """How much of the sum of pushes is added."""
    min_speed: float = 0.5
    """Length a step; slower birds are sped up."""
    max_speed: float = 1.0
    """Length a step; faster birds are slowed down."""

    def __post_init__(self) -> None:
        for name in ("width", "height", "radius", "separation_radius", "softening", "max_speed"):
            expect_positive(name, getattr(self, name))
        if not 0 <= self.min_speed <= self.max_speed:
            raise SettingError(
                f"min_speed: expected 0 to max_speed, {self.max_speed:g}, got {self.min_speed:g}"
            )
        if self.separation_radius > self.radius:
            raise SettingError(
                f"separation_radius: a bird sees {self.radius:g} far and cannot keep apart from "
                f"others at {self.separation_radius:g}; enlarge radius"
            )
        if self.max_speed > min(self.width, self.height) / 2:
            raise SettingError(
                f"max_speed: {self.max_speed:g} a step crosses half of the box; "
                "shrink it, or enlarge the box"
            )

    @property
    def params(self) -> tuple[float, float]:
        """Of the message: squares of the separation radius and of the softening, as float32."""
        near, soft = np.float32(self.separation_radius), np.float32(self.softening)
        return float(near * near), float(soft * soft)

    def message(self) -> Message:
        """Make the message: what a bird hears of one neighbour."""
        push = 1 / self.softening  # more than d / (d² + softening²) can be
        return Message(
            hear,
            {
                "offset_x": self.radius,
                "offset_y": self.radius,
                "velocity_x": self.max_speed,
                "velocity_y": self.max_speed,
                "push_x": push,
                "push_y": push,
            },
            tensors=hear_tensors,
            rows=rows_part,
        )

    def grid(self, num_agents: int, threads: int = 1) -> UniformGrid:
        """Make a grid for so many birds."""
        return UniformGrid(
            self.width, self.height, self.radius, num_agents,
            periodic=self.periodic, lines=len(COLUMNS), threads=threads,
        )  # fmt: skip

    def space(self, num_agents: int) -> Space:
        """Cut the box into cells for so many birds."""
        return space_of(self.width, self.height, self.radius, self.periodic, num_agents)


def box_for(num_agents: int, neighbours: float = 20.0, **settings: Any) -> BoidsSettings:
    """Return settings of a square box in which a bird sees `neighbours` others at random."""
    radius = settings.get("radius", BoidsSettings.radius)
    side = math.sqrt(num_agents * math.pi * radius**2 / neighbours)
    return BoidsSettings(width=side, height=side, **settings)


def hear_tensors(
    dx: Tensor,
    dy: Tensor,
    d2: Tensor,
    _agents: Tensor,
    _i: Tensor,
    others: Tensor,
    k: Tensor,
    params: tuple[float, ...],
) -> tuple[Tensor, ...]:
    """Compute `hear` for many pairs at once."""
    push = torch.where(d2 < params[0], 1 / (d2 + params[1]), 0.0)
    return dx, dy, others[2, k], others[3, k], -dx * push, -dy * push
