"""One step of a model's substeps as a CUDA graph: launched as a whole, without Python.

A graph repeats addresses, so at the end of a captured step every value is in its home tensor again.
It repeats numbers too, so the step is counted on the device, and draws are keyed by that count.
"""

from collections.abc import Callable
from functools import partial

import torch

from hotloop.errors import CaptureError, SubstepError
from hotloop.loop.capture import Replayable, capture_graph
from hotloop.sim.state import State

# (the step, the same without counting) -> what repeats the step
Capture = Callable[[Callable[[], None], Callable[[], None]], Replayable]


class CapturedSteps:
    """A program made of the substeps: a step is captured once and then replayed.

    run_substeps: runs every substep of one step on `state`, and nothing else.
    capture: runs a step and returns what repeats it; a CUDA graph if not given.

    Raises: SubstepError at the first step, for substeps that read `state.step`.
    """

    name = "captured graph"

    def __init__(
        self, state: State, run_substeps: Callable[[], None], capture: Capture | None = None
    ) -> None:
        self._state, self._run_substeps = state, run_substeps
        self._capture = capture or partial(cuda_capture, state.device)
        self._graph: Replayable | None = None
        self._captured_addresses: list[int] = []  # which the graph reads and writes
        self._captures = 0

    def advance(self, first_step: int, steps: int) -> None:
        """Launch the graph `steps` times; the step is counted on the device."""
        del first_step  # the state's step_index, from which the graph continues
        if self._graph is None:
            self._graph = self._captured()
            self._captured_addresses = self._addresses()
        for _ in range(steps):
            self._graph.replay()

    def columns_changed(self) -> None:
        """Capture again where a column has another address; other values are read anyway."""
        if self._graph is not None and self._captured_addresses != self._addresses():
            self._graph = None

    def counters(self) -> dict[str, float]:
        """Return how often the graph was captured."""
        return {"captures": float(self._captures)}

    def close(self) -> None:
        """Free the graph's memory."""
        self._graph = None

    def forget(self) -> None:
        """Capture again at the next step: a tensor that the graph reads was exchanged."""
        self._graph = None

    def _captured(self) -> Replayable:
        before = self._state.get_state()
        self._state.counts_on_device = True
        try:
            return self._capture(self._body, self._uncounted)
        finally:
            self._captures += 1
            self._state.counts_on_device = False
            self._state.set_state(before)

    def _body(self) -> None:
        self._uncounted()
        self._state.step_index.add_(1)

    def _uncounted(self) -> None:
        """Do a step without counting it, as for warming up: counted, it could leave the episode."""
        self._run_substeps()
        self._state.settle()

    def _addresses(self) -> list[int]:
        return [slot.home.data_ptr() for slot in self._state.slots.values()]


def cuda_capture(
    device: torch.device, body: Callable[[], None], warm_up: Callable[[], None]
) -> Replayable:
    """Warm up on a side stream, then capture; the caller undoes what both have changed.

    Raises: SubstepError for what a graph cannot hold.
    """
    try:
        return capture_graph(device, body, warm_up)
    except CaptureError as error:
        raise SubstepError(
            f"a step ran, but cannot be captured as a graph: {error}\nExpected substeps that "
            "leave the host alone: no .item(), no `if` on a tensor, no boolean mask as an "
            "index, no tensor that is moved to the device. Change them, or leave capture out"
        ) from error
