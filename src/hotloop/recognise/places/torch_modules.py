"""The outermost call of an `nn.Module`: acting where no gradient is kept, else a forward pass.

Where a library is known to act with gradients on (`acting`), that is acting too.
"""

import copy
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from hotloop.recognise.place_stage import Replay
from hotloop.recognise.places import (
    ACT,
    FORWARD,
    FORWARD_AND_BACKWARD,
    UPDATE,
    left_gradients,
)
from hotloop.recognise.recognition import Recognition

_DEEPEST = 4  # objects within objects, in an output


def install(recognition: Recognition, module: ModuleType) -> None:
    """Make the calls of root modules stages; module: `torch.nn.modules.module`."""
    # One function: what stands in a call's place reads the variables of this one, which is fastest.
    act = recognition.stage(ACT, effect="pure")
    both = recognition.stage(FORWARD_AND_BACKWARD, effect="stateful", part_of=UPDATE)
    forward = recognition.stage(FORWARD, effect="stateful", within=both, alone=False)
    inside, index = recognition.inside, act.index
    trainable: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
    gradients = left_gradients.of_recognition(recognition)

    def attached(recorded: Any, args: tuple[Any, ...]) -> Any:
        gradients.note_given(args)
        return _attached(recorded, args)

    with_gradients = Replay(frozen=_detached, thawed=attached)

    def keeps_gradient(root: Any, args: tuple[Any, ...]) -> bool:
        import torch

        if not torch.is_grad_enabled():
            return False
        known = trainable.get(root)
        if known is None:
            # One without parameters is a part of what is trained, such as a loss.
            needed = [each.requires_grad for each in root.parameters()]
            known = trainable[root] = any(needed) or not needed
        return known or any(getattr(each, "requires_grad", False) for each in args)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Most calls are of modules within modules: for them this is all there is to do, and it is
        # what the function of torch does.
        if not recognition.modes[index] or inside.now:
            compiled = self._compiled_call_impl
            if compiled is not None:
                return compiled(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        if is_transformed():
            # Of vmap, grad and their like: the call is a part of a function that is transformed.
            return self._call_impl(*args, **kwargs)
        with_gradient = keeps_gradient(self, args)
        stage = forward if with_gradient and not inside.acts else act
        replay = with_gradients if with_gradient else _WITHOUT
        recognition.note(stage.name, self)
        function = self._compiled_call_impl or self._call_impl
        kind = functools.partial(kind_of_call, self, args, kwargs)
        inside.now = True
        try:
            return stage.call(function, args, kwargs, kind, replay)
        finally:
            inside.now = False

    recognition.patches.function(module.Module, "__call__", lambda _torchs_own: call)


def is_transformed() -> bool:
    """Whether this is within vmap, grad or their like: tensors are not what they seem."""
    return _peek()() is not None


@functools.cache
def _peek() -> Callable[[], object]:
    from torch._C._functorch import peek_interpreter_stack

    peek: Callable[[], object] = peek_interpreter_stack
    return peek


def kind_of_call(owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The object, and the shapes that it is called with: outputs have shapes that follow them."""
    return (id(owner), *map(_shape, args), *map(_shape, kwargs.values()))


def _shape(value: Any) -> Any:
    # A batch of a library may have a shape of its own, which is not that of all that it holds.
    items = getattr(value, "items", None)
    if callable(items):
        return tuple(_shape(each) for _, each in items())
    shape = getattr(value, "shape", None)
    if shape is not None:
        return tuple(shape)
    if isinstance(value, tuple | list):
        return tuple(map(_shape, value))
    return value if isinstance(value, bool | int | str) else type(value)


class _Attached:
    """A recorded tensor that had a gradient to carry."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


def _detached(output: Any, _args: tuple[Any, ...]) -> Any:
    return _changed(output, _has_gradient, lambda tensor: _Attached(tensor.detach()))


def _has_gradient(value: Any) -> bool:
    return getattr(value, "grad_fn", None) is not None


def _attached(recorded: Any, _args: tuple[Any, ...]) -> Any:
    """The output with gradients that lead nowhere: a backward pass over it would cost nothing."""
    return _changed(recorded, _is_attached, _attached_again)


def _is_attached(value: Any) -> bool:
    return isinstance(value, _Attached)


def _attached_again(value: _Attached) -> Any:
    attach, anchor = _attaching()
    return attach(anchor, value.tensor)


def _changed(
    value: Any, is_one: Callable[[Any], bool], change: Callable[[Any], Any], deep: int = 0
) -> Any:
    """Return an output with all that `is_one` changed, also within objects of other classes.

    Such an object, as a batch or a distribution, is copied where something in it is changed.
    """
    if is_one(value):
        return change(value)
    from torch.utils._pytree import tree_map

    def changed(leaf: Any) -> Any:
        if is_one(leaf):
            return change(leaf)
        parts = getattr(leaf, "__dict__", None)
        if not parts or deep == _DEEPEST or isinstance(leaf, type | ModuleType):
            return leaf
        others = {
            name: part
            for name, old in parts.items()
            if (part := _changed(old, is_one, change, deep + 1)) is not old
        }
        if not others:
            return leaf
        made = copy.copy(leaf)
        vars(made).update(others)
        return made

    mapped = tree_map(changed, value)
    # A container is made anew by the map, whether or not something in it was changed.
    return mapped if _differs(mapped, value) else value


def _differs(mapped: Any, value: Any) -> bool:
    from torch.utils._pytree import tree_leaves

    leaves = zip(tree_leaves(mapped), tree_leaves(value), strict=True)
    return any(new is not old for new, old in leaves)


@functools.cache
def _attaching() -> tuple[Any, Any]:
    """What gives a tensor a gradient that leads nowhere, and what it seems to come from.

    The result is neither a leaf nor a view: like an output of a module it may be written in place.
    """
    import torch

    class Attach(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, _anchor: Any, tensor: Any) -> Any:
            return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor)

        @staticmethod
        def backward(_ctx: Any, *_gradients: Any) -> Any:
            return None, None

    return Attach.apply, torch.zeros((), requires_grad=True)


WITH_GRADIENT = Replay(frozen=_detached, thawed=_attached)
_WITHOUT = Replay(frozen=_detached)
