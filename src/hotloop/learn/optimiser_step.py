"""One step of the optimiser, in three ways: plain, with a compiled loss, or as one CUDA graph.

A learner says what its loss is; which way its steps are taken, `LearnerSettings.compiled` says.
All keep one rule: a gradient that is no number raises, and changes nothing. What the ways give is
the same, but for bfloat16 and for last bits: a compiled loss adds up in another order, and a graph
has its learning rate and its numbers in single precision.
"""

import contextlib
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.utils._pytree import tree_map_only

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.errors import CaptureError, SettingError
from hotloop.learn.policies.policy import Policy
from hotloop.learn.settings import BFLOAT16, COMPILE, GRAPH, PLAIN
from hotloop.loop.capture import Capture, Replayable, capture_graph

# Shapes of a batch for which a graph is kept, each with memory of its own; other batches, of which
# each may differ, are learned from without one.
MOST_GRAPHS = 4
_COMPILERS = ("g++", "clang++", "c++")  # of which torch.compile needs one for the CPU
_LOG = logging.getLogger("hotloop")

Numbers = Mapping[str, Any]
"""Numbers of a loss that change between updates, by name; tensors where it is compiled."""
Loss = Callable[[Tree, Numbers, Any], tuple[Tensor, Any]]
"""(batch, numbers, computed) -> a scalar, and its terms.

A function of tensors alone, which leaves the host alone. batch: a named tuple of trees of tensors.
computed: what the policy gave for the batch, if that is known; else None, and the loss asks it.
"""


class OptimiserStep(Protocol):
    """Takes steps of the optimiser down the gradient of one loss."""

    keeps_computed: bool
    """Whether a step takes what the policy has computed before, or asks the policy by itself."""

    def computing(self) -> AbstractContextManager[object]:
        """The context in which the policy computes for a loss that is known later."""
        ...

    def __call__(self, batch: Tree, numbers: Numbers, computed: Any = None) -> Any:
        """Take a step; returns the terms of the loss, valid until the next step.

        Raises: what `Descent.refuse` makes, where the gradient is no number; the parameters stay
        as they were.
        """
        ...

    def forget(self) -> None:
        """Keep nothing of the optimiser's state, which was exchanged."""
        ...


@dataclass(frozen=True)
class Descent:
    """What a step is made of, whichever way it is taken.

    refuse: makes an error of what was got in place of a finite gradient, and of the batch.
    """

    policy: Policy
    optimizer: torch.optim.Adam
    loss: Loss
    max_grad_norm: float
    precision: str
    refuse: Callable[[str, Tree], Exception]

    def autocast(self) -> AbstractContextManager[object]:
        """Let the products of the network have the precision that was asked for."""
        if self.precision != BFLOAT16:
            return contextlib.nullcontext()
        # Each weight is used once: a cache of its cast would only be in the way of a graph.
        kind = self.policy.flat.device.type
        return torch.autocast(kind, torch.bfloat16, cache_enabled=False)

    def shorten(self, norm: Tensor) -> None:
        """Shorten the gradient of a norm to the longest that is allowed, on its device."""
        self.policy.grad.mul_((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))

    def finite_norm(self, loss: Tensor, norm: Tensor, batch: Tree) -> float:
        """Return a gradient's norm, on the host. Raises: as `OptimiserStep`."""
        length = float(norm)
        if not math.isfinite(length):
            got = f"loss {float(loss.detach())} and gradient norm {length}"
            raise self.refuse(got, batch)
        return length


class PlainStep:
    """Operation by operation."""

    keeps_computed = True

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._loss = descent.loss

    def computing(self) -> AbstractContextManager[object]:
        """As `OptimiserStep`."""
        return self._descent.autocast()

    def __call__(self, batch: Tree, numbers: Numbers, computed: Any = None) -> Any:
        """As `OptimiserStep`."""
        descent, grad = self._descent, self._descent.policy.grad
        with descent.autocast():
            loss, terms = self._loss(batch, numbers, computed)
        grad.zero_()
        torch.autograd.backward(loss)
        # By hand: torch's helper, made for lists of tensors, costs 35 µs more, a 25th of an
        # optimiser step.
        norm = torch.linalg.vector_norm(grad)
        # One that is surely short enough is left alone, which gives the same bits.
        if descent.finite_norm(loss, norm, batch) > 0.99 * descent.max_grad_norm:
            descent.shorten(norm)
        step_of_adam(descent.optimizer)
        return terms

    def forget(self) -> None:
        """Do nothing: it keeps nothing."""


class CompiledStep(PlainStep):
    """As `PlainStep`, with the loss and its gradient through torch.compile.

    Raises: SettingError where there is nothing to compile with, or for a loss that cannot be.
    """

    keeps_computed = False

    def __init__(self, descent: Descent) -> None:
        super().__init__(descent)
        expect_compiler(descent.policy.flat.device)
        compiled: Any = torch.compile(descent.loss)
        device = descent.policy.flat.device

        def loss(batch: Tree, numbers: Numbers, computed: Any) -> tuple[Tensor, Any]:
            # As tensors: a number would be compiled in, and each new one compiled anew.
            given = {name: torch.tensor(number).to(device) for name, number in numbers.items()}
            try:
                result: tuple[Tensor, Any] = compiled(batch, given, computed)
            except torch._dynamo.exc.TorchDynamoException as error:
                raise SettingError(
                    "compiled: expected a loss and a network that torch.compile takes, got "
                    f"{type(error).__name__}: {error}; take 'plain'"
                ) from error
            return result

        self._loss = loss

    def computing(self) -> AbstractContextManager[object]:
        """As `OptimiserStep`: without gradients, as the compiled loss asks the policy itself."""
        return _without_gradients(self._descent)


class CapturedStep:
    """The whole step as one CUDA graph: one launch, whatever the network.

    A graph repeats addresses: batches are copied into buffers that stay, one set for each shape of
    a batch, and the learning rate is a tensor. Whether the gradient is finite is decided on the
    device, and asked for afterwards.
    capture: runs a step and returns what repeats it.
    """

    keeps_computed = False

    def __init__(self, descent: Descent, capture: Capture = capture_graph) -> None:
        self._descent, self._capture = descent, capture
        self._plain = PlainStep(descent)
        self._graphs: dict[Any, _Graph] = {}
        self._told = False

    def computing(self) -> AbstractContextManager[object]:
        """As `OptimiserStep`: without gradients, as the graph asks the policy itself."""
        return _without_gradients(self._descent)

    def __call__(self, batch: Tree, numbers: Numbers, computed: Any = None) -> Any:
        """As `OptimiserStep`; what was computed before is computed again, in the graph."""
        del computed
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves(batch))
        graph = self._graphs.get(shapes)
        if graph is not None and not graph.is_valid():
            graph = None
            self.forget()
        if graph is None:
            if len(self._graphs) >= MOST_GRAPHS:
                self._tell()
                return self._plain(batch, numbers)
            graph = self._graphs[shapes] = _Graph(self._descent, batch, numbers, self._capture)
        return graph.step(batch, numbers)

    def forget(self) -> None:
        """Capture again at the next step."""
        self._graphs.clear()

    @property
    def graphs(self) -> int:
        """How many shapes of a batch have a graph."""
        return len(self._graphs)

    def _tell(self) -> None:
        if not self._told:
            _LOG.warning(
                "compiled: batches had more than %d shapes: those of others are learned from "
                "without a graph",
                MOST_GRAPHS,
            )
        self._told = True


class _Graph:
    """The step for batches of one shape. Making one changes no parameter.

    Raises: SettingError for a loss that a graph cannot hold.
    """

    def __init__(self, descent: Descent, batch: Tree, numbers: Numbers, capture: Capture) -> None:
        self._descent, device = descent, descent.policy.flat.device
        self._batch = type(batch)(*tree_map(torch.empty_like, tuple(batch)))
        self._numbers = {name: torch.empty((), device=device) for name in numbers}
        self._filled: dict[str, float] = {}  # what the numbers are
        self._is_bad = torch.zeros((), device=device)
        self._loss: Any = None  # where each run leaves it, as the next two
        self._norm: Any = None
        self._terms: Any = None
        self._fill(batch, numbers)
        before = [tensor.clone() for tensor in self._changed()]
        try:
            self._again: Replayable = capture(device, self._body, self._body)
        except CaptureError as error:
            raise SettingError(
                "compiled: expected a loss and a network that a CUDA graph can hold, got: "
                f"{error}; leave the host alone in it (no .item(), no `if` on a tensor), or take "
                "'plain'"
            ) from error
        finally:
            self._put_back(before)
        self._addresses = self._used()

    def step(self, batch: Tree, numbers: Numbers) -> Any:
        """Copy a batch in, and launch."""
        self._fill(batch, numbers)
        self._again.replay()
        self._descent.finite_norm(self._loss, self._norm, batch)
        return self._terms

    def is_valid(self) -> bool:
        """Whether everything that the graph reads and writes still lies where it lay."""
        return self._addresses == self._used()

    def _fill(self, batch: Tree, numbers: Numbers) -> None:
        for static, given in zip(leaves(self._batch), leaves(batch), strict=True):
            static.copy_(given)
        for name, number in numbers.items():
            if self._filled.get(name) != number:
                self._numbers[name].fill_(number)
                self._filled[name] = number

    def _body(self) -> None:
        descent, policy = self._descent, self._descent.policy
        with descent.autocast():
            loss, terms = descent.loss(self._batch, self._numbers, None)
        # Not by `backward`: it adds up on the stream on which the parameters were used first.
        into = policy.network.leaves
        slopes = torch.autograd.grad(loss, into, allow_unused=True)
        # What a run keeps must not hold its operations: the next run is on another stream.
        self._loss, self._terms = tree_map_only(Tensor, Tensor.detach, (loss, terms))
        for leaf, slope in zip(into, slopes, strict=True):
            assert leaf.grad is not None
            leaf.grad.zero_() if slope is None else leaf.grad.copy_(slope)
        self._norm = torch.linalg.vector_norm(policy.grad)
        self._is_bad.copy_(self._norm.isfinite().logical_not())
        descent.shorten(self._norm)
        optimizer: Any = descent.optimizer
        # With it, the fused Adam leaves everything as it is where the number is 1.
        optimizer.found_inf = self._is_bad
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf

    def _changed(self) -> list[Tensor]:
        """What a step changes: the parameters and the optimiser's state."""
        flat = self._descent.policy.flat
        return [flat.detach(), *self._descent.optimizer.state.get(flat, {}).values()]

    def _put_back(self, before: list[Tensor]) -> None:
        for tensor, value in zip(self._changed(), before, strict=False):
            tensor.copy_(value)
        for tensor in self._changed()[len(before) :]:  # which the first step has made
            tensor.zero_()

    def _used(self) -> list[int]:
        rate = self._descent.optimizer.param_groups[0]["lr"]
        used = [*self._changed(), self._descent.policy.grad, rate]
        return [tensor.data_ptr() for tensor in used]


STEPS: Mapping[str, Callable[[Descent], OptimiserStep]] = {
    PLAIN: PlainStep,
    COMPILE: CompiledStep,
    GRAPH: CapturedStep,
}
"""The ways of a step, by `LearnerSettings.compiled`."""


def make_optimizer(flat: Tensor, learning_rate: float, compiled: str) -> torch.optim.Adam:
    """Make Adam for one vector of parameters; for a graph with a learning rate that it reads."""
    in_graph = compiled == GRAPH
    rate = torch.tensor(learning_rate, device=flat.device) if in_graph else learning_rate
    return torch.optim.Adam([flat], rate, eps=1e-5, fused=True, capturable=in_graph)


@torch.no_grad()
def step_of_adam(optimizer: torch.optim.Adam) -> None:
    """Let an optimiser of `make_optimizer` take a step.

    By torch's function for it: the method costs 50 µs more within an update, an eighth of a step on
    a small network, as it asks for hooks and groups that are not there. No hooks run.
    """
    group = optimizer.param_groups[0]
    (flat,) = group["params"]
    state = optimizer.state[flat]
    if not state:
        optimizer.step()  # which makes the state
        return
    first, second = group["betas"]
    adam(
        [flat],
        [flat.grad],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        fused=True,
        capturable=group["capturable"],
        amsgrad=False,
        beta1=first,
        beta2=second,
        lr=group["lr"],
        weight_decay=0.0,
        eps=group["eps"],
        maximize=False,
    )


def expect_compiler(device: torch.device) -> None:
    """Refuse torch.compile where it has nothing to compile with, with SettingError."""
    missing = missing_compiler(device)
    if missing:
        raise SettingError(
            f"compiled: expected {missing} for 'compile' on device {str(device)!r}, got none; "
            "install it, or take 'plain'"
        )


def missing_compiler(device: torch.device) -> str:
    """What torch.compile needs on a device and this machine lacks; empty where it has all."""
    if device.type == "cpu":
        found = any(map(shutil.which, (*filter(None, [os.environ.get("CXX")]), *_COMPILERS)))
        needs = f"a C++ compiler on PATH ({', '.join(_COMPILERS)})"
    else:
        # Of torch itself: whether its compiler for cards is there.
        found, needs = torch.utils._triton.has_triton(), "Triton, which comes with torch for CUDA"
    return "" if found else needs


@contextlib.contextmanager
def _without_gradients(descent: Descent) -> Any:
    with torch.no_grad(), descent.autocast():
        yield
