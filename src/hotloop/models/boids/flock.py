"""The one substep of boids, on tensors of any device: sum over the neighbours, steer, move."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.models.boids.kernels import HEADING_SCALE
from hotloop.models.boids.settings import COLUMNS, BoidsSettings
from hotloop.sim.grid import UniformGrid
from hotloop.sim.grid_tensor import neighbour_sums
from hotloop.sim.state import StateView
from hotloop.sim.substep import Substep

PATHS = tuple(f"agents/birds/{column}" for column in COLUMNS)
POLARISATION = "environment/polarisation"


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
        """Sum what every bird hears: "sums" int64 (7, N) or (7, R, N), in quanta."""
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
        """Compute the change of velocity of every bird: "vx" and "vy"."""
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
        """Limit the speed, move, and apply the box's sides."""
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
        """Return the weight of a rule as float32, () or (R, 1)."""
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
