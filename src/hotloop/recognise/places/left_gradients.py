"""What a backward pass leaves in `.grad`, and what leaves it where the pass is skipped.

The gradients of what is trained are left as they last were. A script may also read those of its own
leaves, such as images that are to be explained, and of outputs that `retain_grad` was called on:
these are made anew in every iteration, and are known by their shapes.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from types import ModuleType
from typing import Any
from weakref import ref

from hotloop.recognise.places import BACKWARD, LEFT_GRADIENTS, OPTIMISER_STEP
from hotloop.recognise.recognition import Recognition

# Leaves that skipped forward passes were given, and retained outputs, of one backward pass.
MOST_KEPT = 256
# Nodes of a graph that are looked at: a penalty on an input is near the loss.
MOST_NODES = 20_000


def of_recognition(recognition: Recognition) -> "LeftGradients":
    """The one object that all places of a recognition share."""
    kept: LeftGradients = recognition.kept.setdefault(LEFT_GRADIENTS, LeftGradients(recognition))
    return kept


def install(recognition: Recognition, tensors: ModuleType) -> None:
    """Note the tensors whose gradient is retained; tensors: `torch._tensor`."""
    gradients = of_recognition(recognition)

    def make(retain: Callable[..., Any]) -> Callable[..., Any]:
        def retained(self: Any, *args: Any, **kwargs: Any) -> Any:
            gradients.note_retained(self)
            return retain(self, *args, **kwargs)

        return retained

    recognition.patches.function(tensors.Tensor, "retain_grad", make)


class LeftGradients:
    """The last gradients of what is trained, and one for each shape of anything else."""

    def __init__(self, recognition: Recognition) -> None:
        self._recognition = recognition
        self._alike: dict[Hashable, Any] = {}  # by shape and kind, of other tensors
        self._leaves: deque[ref[Any]] = deque(maxlen=MOST_KEPT)
        self._retained: deque[ref[Any]] = deque(maxlen=MOST_KEPT)

    @cached_property
    def _last(self) -> Any:
        """By tensor, as long as it is there."""
        from torch.utils.weak import WeakIdKeyDictionary  # not while torch is being imported

        return WeakIdKeyDictionary()

    # --- while passes are recorded ---------------------------------------------------------------

    def keep(self, _output: Any, args: tuple[Any, ...]) -> None:
        """Keep the gradients of now; of a pass that is recorded."""
        trained = list(self._trained())
        for parameter in trained:
            if parameter.grad is not None:
                self._last[parameter] = parameter.grad
        known = set(map(id, trained))
        for each in (*_leaves_of(args), *_alive(self._retained)):
            gradient = None if id(each) in known else _gradient_of(each)
            if gradient is not None:
                self._last[each] = self._alike[_kind(each)] = gradient
        self._retained.clear()

    def note_retained(self, output: Any) -> None:
        """Note a tensor whose gradient is asked for, though it is no leaf."""
        if not output.is_leaf:
            self._retained.append(ref(output))

    # --- while they are skipped ------------------------------------------------------------------

    def note_given(self, args: tuple[Any, ...]) -> None:
        """Note the leaves that lead to what a skipped forward pass is given."""
        if self._alike:
            self._leaves.extend(map(ref, _leaves_of(args)))

    def leave(self, recorded: Any, args: tuple[Any, ...]) -> Any:
        """Put gradients that were set to None back, so that the script finds them."""
        for tensor, gradient in self._last.items():
            if tensor.is_leaf and tensor.grad is None:
                tensor.grad = gradient
        if self._alike:
            for each in (*_alive(self._leaves), *_leaves_of(args), *_alive(self._retained)):
                if _gradient_of(each) is None:
                    self._leave_in(each)
        self._leaves.clear()
        self._retained.clear()
        return recorded

    def _leave_in(self, tensor: Any) -> None:
        gradient = self._alike.get(_kind(tensor))
        if gradient is not None:
            tensor.grad = gradient.detach().clone()
        elif any(kind[1:] == _kind(tensor)[1:] for kind in self._alike):  # type: ignore[index]
            self._recognition.stages[BACKWARD].tape.missed += 1
            tensor.grad = tensor.detach().clone().zero_()

    def _trained(self) -> Iterator[Any]:
        for optimiser in self._recognition.objects.get(OPTIMISER_STEP, ()):
            yield from _parameters_of(optimiser)


def _parameters_of(optimiser: Any) -> Iterator[Any]:
    """What an optimiser trains; Keras' have variables, and none before their first step."""
    if hasattr(optimiser, "param_groups"):
        for group in optimiser.param_groups:
            yield from group["params"]
    else:
        for variable in getattr(optimiser, "_trainable_variables", ()):
            yield variable.value


def _gradient_of(tensor: Any) -> Any:
    """The gradient of a leaf, or of what retains it; torch warns of asking anything else."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def _kind(tensor: Any) -> Hashable:
    return tuple(tensor.shape), tensor.dtype, tensor.device


def _alive(noted: deque["ref[Any]"]) -> list[Any]:
    return [each for one in noted if (each := one()) is not None]


def _leaves_of(args: tuple[Any, ...]) -> list[Any]:
    """The leaves with gradient that lead to any of these tensors."""
    from torch.utils._pytree import tree_leaves

    found: dict[int, Any] = {}
    seen: set[Any] = set()
    waiting = []
    for each in tree_leaves(args):
        node = getattr(each, "grad_fn", None)
        if node is not None:
            waiting.append(node)
        elif getattr(each, "requires_grad", False):
            found[id(each)] = each
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
        waiting += [following for following, _ in node.next_functions if following is not None]
    return list(found.values())
