"""Two detectors for accelerators: the host waits for the device; tensors are made on the host.

Both watch the operations of torch. A device is whatever is not the CPU, so that both can be tested
without one.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hotloop.loop.values import arrays_in, is_strided, is_tensor, torch_if_loaded
from hotloop.optimize.advice import Advice
from hotloop.optimize.operations import Operation
from hotloop.optimize.patches import around
from hotloop.optimize.places import Place, user_place
from hotloop.optimize.watched import Instrument, Phase, Watched

# What happens in fewer of the iterations is logging, or the start of an epoch.
LEAST_PER_ITERATION = 0.2
# How much of what was made is remembered until it is moved.
MOST_HELD, MOST_HELD_BYTES = 64, 1 << 28

# Their result, or its size, is needed on the host before the next line can run.
_NEEDS_NUMBERS = frozenset(
    f"aten.{name}"
    for name in (
        "_local_scalar_dense",
        "is_nonzero",
        "_is_all_true",
        "_is_any_true",
        "equal",
        "nonzero",
        "masked_select",
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "unique_dim_consecutive",
        "bincount",
    )
)
_MOVES = frozenset({"aten._to_copy", "aten.copy_"})
# They need nothing from the host, so they can run on the device. Memory that is not filled is left
# out: it is how a buffer for data of the host begins.
_FACTORIES = frozenset(
    f"aten.{name}"
    for name in (
        "zeros",
        "ones",
        "full",
        "new_zeros",
        "new_ones",
        "new_full",
        "eye",
        "arange",
        "linspace",
        "logspace",
        "rand",
        "randn",
        "randint",
        "randperm",
        "normal",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
    )
)


class Synchronisation:
    """Finds where the host waits for a device: `.item()`, `.cpu()`, `bool(tensor)`, `nonzero`."""

    def __init__(self) -> None:
        self._calls: Counter[Place] = Counter()
        self._bytes: Counter[Place] = Counter()

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It watches operations."""
        return {Phase.OPERATIONS: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        torch = torch_if_loaded()
        if torch is None:
            yield
            return
        watched.operations.listeners.append(self._note)
        with around(torch.cuda, "synchronize", self._explicit):
            yield

    def _note(self, operation: Operation) -> None:
        moved = _waits_for(operation)
        if moved is not None:
            self._count(operation.frame, moved)

    def _explicit(self, function: Any, args: Any, kwargs: Any) -> Any:
        self._count(sys._getframe(1), 0)
        return function(*args, **kwargs)

    def _count(self, frame: Any, moved: int) -> None:
        place = user_place(frame)
        if place is not None:
            self._calls[place] += 1
            self._bytes[place] += moved

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's that waits in more than a few iterations."""
        found = []
        for place, calls in self._calls.most_common():
            rate = watched.per_iteration(calls, Phase.OPERATIONS)
            if rate < LEAST_PER_ITERATION:
                continue
            moved = watched.per_iteration(self._bytes[place], Phase.OPERATIONS)
            found.append(
                watched.advice(
                    "synchronisation",
                    place,
                    "the host waits here until the device has done all its work",
                    "keep the value on the device, and read it once in many iterations, or copy "
                    "it with non_blocking=True and use it an iteration later; what a simulator on "
                    "the host needs, copy once for all envs",
                    watched.samples.share_at(place),
                    ("waits an iteration", rate, ""),
                    ("copied to the host an iteration", moved, "bytes"),
                )
            )
        return found


def _waits_for(operation: Operation) -> int | None:
    """The bytes that come to the host with a wait for the device, or None without a wait."""
    name = operation.name
    if name in _NEEDS_NUMBERS:
        source = operation.args[0]
        if not _on_device(source):
            return None
        return int(source.element_size()) if name.endswith("_dense") else 0
    if name == "aten.index":
        masks = [each for each in operation.args[1] if each is not None]
        waits = any(_on_device(each) and "bool" in str(each.dtype) for each in masks)
        return 0 if waits else None
    if name in _MOVES and not _may_overlap(operation):
        target, source = _ends(operation)
        if _on_device(source) and not _on_device(target):
            return int(source.nbytes)
    return None


def _ends(operation: Operation) -> tuple[Any, Any]:
    """The target and the source of a copy."""
    if operation.name == "aten.copy_":
        return operation.args[0], operation.args[1]
    return operation.result, operation.args[0]


def _may_overlap(operation: Operation) -> bool:
    if operation.kwargs.get("non_blocking"):
        return True
    return operation.name == "aten.copy_" and len(operation.args) > 2 and bool(operation.args[2])


def _on_device(value: Any) -> bool:
    device = getattr(value, "device", None)
    return device is not None and device.type != "cpu"


def _memory(tensor: Any) -> int | None:
    """A number for the memory of a tensor of the host; None on a device, or for another layout."""
    if not is_tensor(tensor) or _on_device(tensor) or not is_strided(tensor):
        return None
    return int(tensor.untyped_storage()._cdata)


class WrongDevice:
    """Finds tensors that are made on the host by a factory, and then go to a device."""

    def __init__(self) -> None:
        # By their memory, which a view has too; and held, since memory that is gone is used again.
        self._made: dict[int | None, tuple[Any, Place]] = {}
        self._held_bytes = 0
        self._moved: Counter[Place] = Counter()
        self._bytes: Counter[Place] = Counter()
        self._to: defaultdict[Place, set[Place]] = defaultdict(set)

    @property
    def phases(self) -> Mapping[Phase, Instrument]:
        """It watches operations."""
        return {Phase.OPERATIONS: self._watch}

    @contextmanager
    def _watch(self, watched: Watched) -> Iterator[None]:
        watched.operations.listeners.append(self._note)
        try:
            yield
        finally:
            self._made.clear()

    def _note(self, operation: Operation) -> None:
        if operation.name in _FACTORIES:
            self._note_made(operation)
            return
        used = list(arrays_in(operation.args, 2))
        made = [tensor for tensor in used if _memory(tensor) in self._made]
        if not made:
            return
        tensors = [tensor for tensor in used if is_tensor(tensor)]
        if operation.name == "aten.copy_" and used[0] is made[0]:
            self._forget(made[0])  # a buffer for what comes from the host
        elif operation.name in _MOVES:
            if _on_device(_ends(operation)[0]):
                self._note_moved(made[0], operation)
        elif any(_on_device(tensor) for tensor in tensors):
            for tensor in {_memory(tensor): tensor for tensor in made}.values():
                self._note_moved(tensor, operation)
        elif len(made) == len(tensors):  # computed from nothing else
            self._remember(operation.result, self._made[_memory(made[0])][1])

    def _note_made(self, operation: Operation) -> None:
        place = user_place(operation.frame)
        if place is not None:
            self._remember(operation.result, place)

    def _remember(self, tensor: Any, place: Place) -> None:
        # A number without a dimension is a part of the command to the device.
        if _memory(tensor) in (None, *self._made) or not tensor.dim():
            return
        self._made[_memory(tensor)] = (tensor, place)
        self._held_bytes += int(tensor.nbytes)
        while self._held_bytes > MOST_HELD_BYTES or len(self._made) > MOST_HELD:
            self._forget(next(iter(self._made.values()))[0])

    def _forget(self, tensor: Any) -> Place:
        held, place = self._made.pop(_memory(tensor))
        self._held_bytes -= int(held.nbytes)
        return place

    def _note_moved(self, tensor: Any, operation: Operation) -> None:
        place = self._forget(tensor)
        self._moved[place] += 1
        self._bytes[place] += int(tensor.nbytes)
        at = user_place(operation.frame)
        self._to[place] |= {place} if at is None else {place, at}

    def advice(self, watched: Watched) -> list[Advice]:
        """Every line of the user's that makes such tensors in more than a few iterations."""
        found = []
        for place, moved in self._moved.most_common():
            rate = watched.per_iteration(moved, Phase.OPERATIONS)
            if rate < LEAST_PER_ITERATION:
                continue
            copied = watched.per_iteration(self._bytes[place], Phase.OPERATIONS)
            found.append(
                watched.advice(
                    "wrong device",
                    place,
                    "a tensor is made on the host here and then copied to the device",
                    "make it where it is used: pass device=… to the function that makes it",
                    watched.samples.share_at(*self._to[place]),
                    ("tensors an iteration", rate, ""),
                    ("copied to the device an iteration", copied, "bytes"),
                )
            )
        return found
