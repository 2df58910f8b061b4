"""Boids: birds that keep apart, fly as their neighbours do, and stay together.

The model says what a bird hears of one neighbour and what it makes of the sums; who the neighbours
are is the engine's business (`hotloop.sim.grid`). `Flock` is the model's meaning, on tensors of
any device; `hotloop.models.boids_program` is the same in compiled loops, equal to the last bit.
Source: Reynolds, "Flocks, herds, and schools: a distributed behavioral model", SIGGRAPH 1987.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import SettingError, expect_positive
from hotloop.models.boids_kernels import HEADING_SCALE, hear, rows_part
from hotloop.sim import draws
from hotloop.sim.grid import Message, UniformGrid, space_of
from hotloop.sim.grid_kernels import Space
from hotloop.sim.grid_tensor import neighbour_sums
from hotloop.sim.model import Column, Model, Series
from hotloop.sim.state import StateView
from hotloop.sim.substep import Substep

if TYPE_CHECKING:
    from hotloop.sim.program import Parts, Program

COLUMNS = ("x", "y", "vx", "vy")
PATHS = tuple(f"agents/birds/{column}" for column in COLUMNS)
POLARISATION = "environment/polarisation"


@dataclass(frozen=True)
class BoidsSettings:
    """The box, how far a bird sees, and how strongly it steers; the unit of time is a step.

    Raises: SettingError for what cannot be.
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
        """What a bird hears of one neighbour."""
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
        """A grid for birds."""
        return UniformGrid(
            self.width, self.height, self.radius, num_agents,
            periodic=self.periodic, lines=len(COLUMNS), threads=threads,
        )  # fmt: skip

    def space(self, num_agents: int) -> Space:
        """The cells of the box."""
        return space_of(self.width, self.height, self.radius, self.periodic, num_agents)


def box_for(num_agents: int, neighbours: float = 20.0, **settings: Any) -> BoidsSettings:
    """Settings with a square box in which a bird of a random flock sees so many others."""
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
    """`hear`, of many pairs."""
    push = torch.where(d2 < params[0], 1 / (d2 + params[1]), 0.0)
    return dx, dy, others[2, k], others[3, k], -dx * push, -dy * push


class Flock(Substep):
    """One step of all birds at once: hear the neighbours, steer, move.

    v' = v + cohesion (mean x_j − x) + alignment (mean v_j − v) + separation Σ (x − x_j) / (d² + s²)
    over the neighbours j, the last sum over those within the separation radius; the speed is then
    cut to its limits, and x' = x + v'. Sums over neighbours are in fixed point: see `Message`.
    Polarisation is |Σ v' / |v'|| / N: 1 where all fly one way, about N^(-1/2) where none agree.

    compiled: whether the sums come from compiled loops where the birds are on the CPU; False takes
    tensors there too, as on a GPU. Both give the same bits.
    Shapes: columns float32 (N,) or (R, N).
    """

    name = "flock"
    populations = ("birds",)
    reads = PATHS
    writes = (*PATHS, POLARISATION)

    def __init__(self, settings: BoidsSettings, *, compiled: bool = True) -> None:
        super().__init__(
            cohesion=settings.cohesion,
            alignment=settings.alignment,
            separation=settings.separation,
        )
        self.settings = settings
        self.message = settings.message()
        self.compiled = compiled
        self._grid: UniformGrid | None = None  # made with the first step, when N is known

    def observe(self, state: StateView) -> Mapping[str, Any]:
        """What every bird hears in all: "sums" int64 (7, N) or (7, R, N), in quanta."""
        columns = tuple(state[path] for path in PATHS)
        if self.compiled and columns[0].device.type == "cpu":
            return {"sums": self._compiled_sums(columns)}
        space = self.settings.space(columns[0].shape[-1])
        return {"sums": neighbour_sums(space, columns, self.message, self.settings.params)}

    def _compiled_sums(self, columns: tuple[Tensor, ...]) -> Tensor:
        settings, size = self.settings, columns[0].shape[-1]
        if self._grid is None or self._grid.num_agents != size:
            self._grid = settings.grid(size)
        runs = zip(*(column.view(-1, size).numpy() for column in columns), strict=True)
        sums = []
        for run in runs:
            self._grid.load(run)
            sums.append(self._grid.sums(self.message, settings.params))
        return torch.from_numpy(np.stack(sums, 1)).view(-1, *columns[0].shape)

    def act(self, state: StateView, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The change of velocity that every bird wants: "vx" and "vy"."""
        sums, quanta = observation["sums"], self.message.quanta
        number = sums[0].clamp(min=1).to(torch.float32)
        wanted = {}
        for axis, name in enumerate(("vx", "vy")):
            centre, flow, push = (
                sums[1 + 2 * rule + axis].to(torch.float32) * quanta[2 * rule + axis]
                for rule in range(3)
            )
            turn = torch.where(sums[0] == 0, 0.0, flow / number - state[f"agents/birds/{name}"])
            wanted[name] = (
                self.weight("cohesion") * (centre / number) + self.weight("alignment") * turn
            ) + self.weight("separation") * push
        return wanted

    def transition(self, state: StateView, action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Speed limits, the move, and the box's sides."""
        s = self.settings
        x, y, vx, vy = (state[path] for path in PATHS)
        vx, vy = vx + action["vx"], vy + action["vy"]
        # torch's own root of a float32 is off by a bit now and then; through float64 it is exact.
        speed = (vx * vx + vy * vy).to(torch.float64).sqrt().to(torch.float32)
        wanted = speed.clamp(s.min_speed, s.max_speed)
        moving = speed > 0
        facing = [torch.where(moving, v / speed, 0.0) for v in (vx, vy)]
        total = [(f * HEADING_SCALE).to(torch.int64).sum(-1).to(torch.float64) for f in facing]
        length = torch.sqrt(total[0] * total[0] + total[1] * total[1])
        x, vx = self._moved(x, facing[0] * wanted, s.width)
        y, vy = self._moved(y, facing[1] * wanted, s.height)
        polarisation = (length / (x.shape[-1] * HEADING_SCALE)).to(torch.float32)
        return dict(zip(self.writes, (x, y, vx, vy, polarisation), strict=True))

    def weight(self, name: str) -> Tensor:
        """The weight of a rule as float32, () or (R, 1)."""
        weight = self.parameter(name).detach().to(torch.float32)
        return weight.unsqueeze(-1) if weight.dim() else weight

    def _moved(self, x: Tensor, v: Tensor, side: float) -> tuple[Tensor, Tensor]:
        side = float(np.float32(side))
        x = x + v
        if self.settings.periodic:
            x = torch.where(x >= side, x - side, x)
            x = torch.where(x < 0, x + side, x)
            return torch.where(x >= side, 0.0, x), v
        v = torch.where((x < 0) | (x > side), -v, v)
        x = x.abs()
        return torch.where(x > side, side - (x - side), x), v


def model(
    num_agents: int = 10_000,
    settings: BoidsSettings | None = None,
    *,
    num_steps: int = 100,
    compiled: bool = True,
) -> Model:
    """Boids as a model for `Executor`: birds anywhere, in any direction, at the middle speed.

    settings: None is a square box in which a bird sees 20 others on average at first.
    compiled: see `Flock`; where the program takes the substep's place, it makes no difference.
    `environment["polarisation"]` is the series of how much the flock agrees.

    Raises: SettingError for a box that is too small for the radius.
    """
    expect_positive("num_agents", num_agents)
    settings = settings or box_for(num_agents)
    settings.space(num_agents)  # refuses now what could not be
    speed = (settings.min_speed + settings.max_speed) / 2

    def position(line: int, side: float) -> Column:
        # Rounding to float32 must not put a bird onto the far side, which is the near one.
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
    """Uniform draws of the start, a stream of ids for each of x, y and direction."""
    size = state.size("birds")
    ids = torch.arange(size, device=state.device) + line * size
    return draws.uniform(state.seeds, 0, draws.INITIAL, ids)


def _program(parts: "Parts") -> "Program | None":
    from hotloop.models.boids_program import FlockProgram  # which imports this module

    flock = parts.substeps[0]
    if not isinstance(flock, Flock) or parts.settings.device.type != "cpu":
        return None
    return FlockProgram(flock, parts)
