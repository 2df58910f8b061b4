"""One step of a model's substeps as a CUDA graph: launched as a whole, without Python.

A graph repeats addresses, so a captured step ends where it began: every value is brought home. It
repeats numbers too, so the step is counted on the device and draws are keyed by that count.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from hotloop.sim.state import State

# Runs before the capture: libraries take their workspaces in the first ones.
WARM_UP_STEPS = 2


class Replayable(Protocol):
    """A recorded sequence of launches."""

    def replay(self) -> None:
        """Launch it again."""


Capture = Callable[[Callable[[], None]], Replayable]


class CapturedSteps:
    """A program made of the substeps: a step is captured once and replayed from then on.

    run_substeps: runs every substep of one step on `state`.
    capture: runs a function and returns what repeats it; a CUDA graph if not given.

    Raises: SubstepError at the first step, for substeps that read `state.step`.
    """

    name = "captured graph"

    def __init__(
        self, state: State, run_substeps: Callable[[], None], capture: Capture | None = None
    ) -> None:
        self._state, self._run_substeps = state, run_substeps
        self._capture = capture or cuda_capture
        self._graph: Replayable | None = None
        self._captures = 0

    def advance(self, first_step: int, steps: int) -> None:
        """Launch the graph `steps` times; the step is counted on the device."""
        del first_step  # the state's step_index, which the graph goes on from
        if self._graph is None:
            self._graph = self._captured()
        for _ in range(steps):
            self._graph.replay()

    def columns_changed(self) -> None:
        """Nothing is derived from columns."""

    def counters(self) -> dict[str, float]:
        """How often the graph was captured."""
        return {"captures": float(self._captures)}

    def close(self) -> None:
        """Let go of the graph's memory."""
        self._graph = None

    def forget(self) -> None:
        """Capture anew at the next step: a tensor that the graph reads was exchanged."""
        self._graph = None

    def _captured(self) -> Replayable:
        before = self._state.get_state()
        self._state.counts_on_device = True
        try:
            return self._capture(self._body)
        finally:
            self._captures += 1
            self._state.counts_on_device = False
            self._state.set_state(before)

    def _body(self) -> None:
        self._run_substeps()
        self._state.settle()
        self._state.step_index.add_(1)


def cuda_capture(body: Callable[[], None]) -> Replayable:
    """Warm up on a side stream, then capture. What `body` changed is the caller's to undo."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_STEPS):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph  # type: ignore[no-any-return]
