"""How batches come from the host's memory to the device that learns: plain, or pinned.

From pinned memory a copy runs on a stream of its own, beside the computing. There are two buffers:
while one batch is learned from, the next is copied.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.learn.losses import Batch
from hotloop.learn.policies.tensors import to_tensors
from hotloop.learn.settings import PINNED, PLAIN

BUFFERS = 2
HOST = torch.device("cpu")
T = TypeVar("T")


class Transfer(Protocol):
    """Moves trees of arrays to the device that learns."""

    def move(self, arrays: Tree) -> Any:
        """Return arrays as tensors on the device; those of the call before stay valid."""
        ...

    def ahead(self, items: Iterable[T], arrays: Callable[[T], Tree]) -> Iterator[tuple[T, Any]]:
        """Return each item once, in order, with its arrays on the device if they were moved ahead.

        Tensors are valid until the next item is asked for; None: they were not moved.
        """
        ...

    def minibatches(
        self, batch: Tree, epochs: int, count: int, rng: np.random.Generator
    ) -> Iterator[Batch]:
        """Cut a batch of arrays at random into `count` minibatches, in each of the epochs.

        Tensors are valid until the next minibatch is asked for.
        """
        ...


class PlainTransfer:
    """Copies when a batch is asked for; on the CPU it never has to."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def move(self, arrays: Tree) -> Any:
        """As `Transfer`."""
        return to_tensors(arrays, self._device)

    def ahead(self, items: Iterable[T], arrays: Callable[[T], Tree]) -> Iterator[tuple[T, Any]]:
        """As `Transfer`: nothing is moved ahead."""
        del arrays
        for item in items:
            yield item, None

    def minibatches(
        self, batch: Tree, epochs: int, count: int, rng: np.random.Generator
    ) -> Iterator[Batch]:
        """As `Transfer`: the batch is moved once, and cut on the device."""
        moved = Batch(*self.move(tuple(batch)))
        for _ in range(epochs):
            yield from moved.parts(count, rng)


class Lane(Protocol):
    """Copies to a device, beside its computing; a mark stands for the end of a copy."""

    def buffer(self, like: Tensor) -> Tensor:
        """Return memory of the host from which copies run beside the host's work."""
        ...

    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Any:
        """Begin to copy each first into each second, after what was computed so far; the mark."""
        ...

    def computing_waits_for(self, mark: Any) -> None:
        """Let what is computed from now on wait for a copy."""
        ...

    def host_waits_for(self, mark: Any) -> None:
        """Wait until a copy is complete."""
        ...


class CudaLane:
    """A stream of its own, from pinned memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def buffer(self, like: Tensor) -> Tensor:
        """As `Lane`."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def copy(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Any:
        """As `Lane`."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for source, target in pairs:
                target.copy_(source, non_blocking=True)
            mark = torch.cuda.Event()
            mark.record(self._stream)
        return mark

    def computing_waits_for(self, mark: Any) -> None:
        """As `Lane`."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def host_waits_for(self, mark: Any) -> None:
        """As `Lane`."""
        mark.synchronize()


class PinnedTransfer:
    """Two buffers that take turns: one is copied while the batch of the other is learned from."""

    def __init__(self, device: torch.device, lane: Lane | None = None) -> None:
        self._lane = CudaLane(device) if lane is None else lane
        self._buffers = deque(_Buffer(device, self._lane) for _ in range(BUFFERS))

    def move(self, arrays: Tree) -> Any:
        """As `Transfer`."""
        return self._taken(self._begun(to_tensors(arrays, HOST)))

    def ahead(self, items: Iterable[T], arrays: Callable[[T], Tree]) -> Iterator[tuple[T, Any]]:
        """As `Transfer`: one item is asked for, and its copy begun, ahead of the one before."""
        yield from self._one_ahead((item, to_tensors(arrays(item), HOST)) for item in items)

    def minibatches(
        self, batch: Tree, epochs: int, count: int, rng: np.random.Generator
    ) -> Iterator[Batch]:
        """As `Transfer`: cut on the host, and moved one ahead; a single one is moved once."""
        whole = Batch(*to_tensors(tuple(batch), HOST))
        if count == 1:
            moved = Batch(*self._taken(self._begun(tuple(whole))))
            for _ in range(epochs):
                yield moved
            return
        parts = (tuple(part) for _ in range(epochs) for part in whole.parts(count, rng))
        for _, tensors in self._one_ahead((None, part) for part in parts):
            yield Batch(*tensors)

    def _one_ahead(self, items: Iterable[tuple[T, Any]]) -> Iterator[tuple[T, Any]]:
        """The items with their tensors on the device, in place of those on the host."""
        under_way: deque[tuple[T, _Buffer]] = deque()
        for item, tensors in items:
            # Into the buffer of the item before the last, which is learned from by now: this copy
            # waits for that, and runs beside what is learned from the last.
            under_way.append((item, self._begun(tensors)))
            if len(under_way) == BUFFERS:
                first, buffer = under_way.popleft()
                yield first, self._taken(buffer)
        for item, buffer in under_way:
            yield item, self._taken(buffer)

    def _begun(self, tensors: Any) -> "_Buffer":
        buffer = self._buffers.popleft()
        self._buffers.append(buffer)
        buffer.begin(tensors)
        return buffer

    def _taken(self, buffer: "_Buffer") -> Any:
        self._lane.computing_waits_for(buffer.mark)
        return buffer.tensors


class _Buffer:
    """Memory of the host and of the device for one batch, used again for those of one shape."""

    def __init__(self, device: torch.device, lane: Lane) -> None:
        self._device, self._lane = device, lane
        self._shapes: list[Any] = []
        self._sources: list[Tensor] = []
        self.tensors: Any = None
        self.mark: Any = None

    def begin(self, tree: Tree) -> None:
        """Begin to copy tensors of the host."""
        given = list(leaves(tree))
        if self.mark is not None:
            self._lane.host_waits_for(self.mark)
        shapes = [(tensor.shape, tensor.dtype) for tensor in given]
        if shapes != self._shapes:
            self._shapes = shapes
            self._sources = [self._lane.buffer(tensor) for tensor in given]
            self.tensors = tree_map(
                lambda t: torch.empty(t.shape, dtype=t.dtype, device=self._device), tree
            )
        for source, tensor in zip(self._sources, given, strict=True):
            source.copy_(tensor)
        self.mark = self._lane.copy(zip(self._sources, leaves(self.tensors), strict=True))


TRANSFERS: Mapping[str, Callable[[torch.device], Transfer]] = {
    PLAIN: PlainTransfer,
    PINNED: PinnedTransfer,
}
"""The ways of a transfer, by `LearnerSettings.transfer`."""
