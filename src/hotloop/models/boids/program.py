"""Boids as a program: compiled steps on agents that stay sorted by cell.

A step writes the moved birds in the order of the old cells and counts those of the new cells; they
are then placed by cell, which is nearly the same order, so that both passes read and write memory
in sequence. No step allocates. At the end of `advance` the birds are written to the state's columns
in the order of their ids.
"""

import numpy as np

from hotloop.models.boids.flock import PATHS, POLARISATION, Flock
from hotloop.models.boids.kernels import HEADING_SCALE, Steering, advance, step_part
from hotloop.sim.grid import UniformGrid
from hotloop.sim.program import Parts
from hotloop.sim.threads import thread_count


class FlockProgram:
    """Steps the columns of one flock, or of R, in place; equal to `Flock` to the last bit."""

    name = "fused cpu"

    def __init__(self, flock: Flock, parts: Parts) -> None:
        self._flock, self._state = flock, parts.state
        self.threads = thread_count(parts.settings.threads)
        self._size = parts.state.size("birds")
        self._grids = [
            flock.settings.grid(self._size, self.threads)
            for _ in range(parts.settings.replicates or 1)
        ]
        self._sums = np.zeros((1 + len(flock.message.bounds), self._size), np.int64)
        self._numbers = tuple(np.float32(value) for value in flock.settings.params)
        self._neighbours = self._steps = 0
        self._changed = True

    def columns_changed(self) -> None:
        """Note that the columns were changed from outside: birds are sorted anew."""
        self._changed = True

    def advance(self, first_step: int, steps: int) -> None:
        """Step every flock from first_step on; `steps` of them."""
        if steps < 1:
            return
        series = self._state[POLARISATION].view(-1, self._state.num_steps).numpy()
        columns = [self._state[path].view(-1, self._size).numpy() for path in PATHS]
        headings = np.zeros((steps, 2), np.int64)
        for run, grid in enumerate(self._grids):
            own = [column[run] for column in columns]
            if self._changed:
                grid.load(own)
            self._advance(grid, self._steering(run), headings)
            grid.store(own)
            total = headings.astype(np.float64)
            length = np.sqrt(total[:, 0] * total[:, 0] + total[:, 1] * total[:, 1])
            series[run, first_step : first_step + steps] = length / (self._size * HEADING_SCALE)
        self._changed = False
        self._steps += steps * len(self._grids)

    def _advance(self, grid: UniformGrid, steering: Steering, headings: np.ndarray) -> None:
        message = self._flock.message
        fixed = (grid.starts, grid.space, self._numbers, message.scales)
        if self.threads == 1:
            advance(
                len(headings), grid.agents, grid.ids, *fixed, grid.blocks[0], self._sums,
                steering, grid.cell, grid.counts, grid.spare, grid.spare_ids, headings,
            )  # fmt: skip
            self._neighbours += int(self._sums[0].sum())
            return
        parts_headings = np.zeros((grid.parts, 2), np.int64)
        for step in range(len(headings)):
            cuts = grid.rows_of_parts()

            def move(part: int, cuts: np.ndarray = cuts) -> None:
                parts_headings[part] = step_part(
                    grid.agents, cuts[part], cuts[part + 1], *fixed, grid.blocks[part],
                    self._sums, steering, grid.cell, grid.counts[part], grid.spare,
                )  # fmt: skip

            grid.run(move)
            headings[step] = parts_headings.sum(0)
            bounds = grid.starts[cuts * grid.space.columns]
            np.copyto(grid.spare_ids, grid.ids)
            grid.place(bounds)
        self._neighbours += int(self._sums[0].sum())

    def _steering(self, run: int) -> Steering:
        flock, settings = self._flock, self._flock.settings
        cohesion, alignment, separation = (
            np.float32(flock.weight(name).expand(len(self._grids), 1)[run].item())
            for name in ("cohesion", "alignment", "separation")
        )
        offset, velocity, push = (np.float32(quantum) for quantum in flock.message.quanta[::2])
        slowest, fastest = np.float32(settings.min_speed), np.float32(settings.max_speed)
        return Steering(cohesion, alignment, separation, slowest, fastest, offset, velocity, push)

    def counters(self) -> dict[str, float]:
        """Count agent steps, and the neighbours heard in the last step of each `advance`."""
        return {
            "active_agent_steps": float(self._steps * self._size),
            "edges": float(self._neighbours),
        }

    @property
    def nbytes(self) -> int:
        """Bytes kept beside the state."""
        return sum(grid.nbytes for grid in self._grids) + self._sums.nbytes

    def close(self) -> None:
        """End the threads."""
        for grid in self._grids:
            grid.close()
