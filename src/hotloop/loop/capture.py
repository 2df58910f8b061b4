"""A sequence of launches on a card, captured once as a CUDA graph and launched as a whole."""

from collections.abc import Callable
from typing import Any, Protocol

from hotloop.errors import CaptureError
from hotloop.loop.values import torch_if_loaded

# Runs before the capture: libraries allocate their workspaces in the first ones.
WARM_UP_RUNS = 2


class Replayable(Protocol):
    """A recorded sequence of launches."""

    def replay(self) -> None:
        """Launch it again."""


# (device, what is captured, what warms up) -> what repeats it
Capture = Callable[[Any, Callable[[], None], Callable[[], None]], Replayable]


def capture_graph(device: Any, body: Callable[[], None], warm_up: Callable[[], None]) -> Replayable:
    """Warm up on a side stream, then capture `body`; the caller undoes what both have changed.

    device: of torch. Raises: CaptureError for what a graph cannot hold; what `warm_up` raises.
    """
    torch: Any = torch_if_loaded()
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                warm_up()
        torch.cuda.current_stream().wait_stream(side)
        graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                body()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaptureError(str(error)) from error
    return graph  # type: ignore[no-any-return]
