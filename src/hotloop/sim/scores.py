"""A gradient for models that draw: the score function of every draw compared with a probability.

The decision `state.uniform(...) < chance` has no derivative, but its probability has: with S the
sum of the logarithms of the probabilities of all decisions until now, and c any value that depends
on them,

    d E[c] = E[dc + (c - b) dS],

for any b that does not depend on the run's own draws. Here b is the mean of the other replicates.
The estimate has no bias, but much variance: it grows with the number of decisions, and falls with
the number of replicates. Copies of columns in a record between these steps have torch's gradient
only. A value that has a gradient of torch's, such as from a straight-through estimator in the
model, keeps that and gets no other, unless gradient="score" asks for both.
Source: Williams 1992; leave-one-out baselines, Kool, van Hoof and Welling 2019.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hotloop.errors import SettingError, SubstepError
from hotloop.sim.state import State

_BELOW = {torch.lt, torch.le, torch.less, torch.less_equal, Tensor.__lt__, Tensor.__le__}
_BELOW |= {Tensor.lt, Tensor.le, Tensor.less, Tensor.less_equal}
_ABOVE = {torch.gt, torch.ge, torch.greater, torch.greater_equal, Tensor.__gt__, Tensor.__ge__}
_ABOVE |= {Tensor.gt, Tensor.ge, Tensor.greater, Tensor.greater_equal}
# Operations that leave draws as they are.
_SAME_DRAWS = {Tensor.to, Tensor.float, Tensor.double, Tensor.detach, Tensor.clone, torch.clone}


class Scores:
    """The decisions of consecutive steps, and the gradient that they give to what depends on them.

    to_all: also to values that have a gradient without them.
    """

    def __init__(self, state: State, *, to_all: bool) -> None:
        self._state, self._to_all = state, to_all
        self._warned = False
        # Whether a single run may still turn out to have no gradient.
        self.may_refuse = (state.replicates or 1) < 2
        self._first: int | None = None
        self._by_step: dict[int, Tensor] = {}
        self._inner: dict[str, tuple[Tensor, Tensor]] = {}  # by path: without scores, and with

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the decisions of the steps in the block, which continue those noted before.

        What these steps read has no score: it would count twice in their results.
        """
        if self._first is None:
            self._first, self._by_step = self._state.step, {}
        for path, (inner, outer) in self._inner.items():
            slot = self._state.slots[path]
            if slot.now is outer:
                slot.now = inner
        self._inner = {}
        self._state.watch = self._watched
        try:
            yield
        finally:
            self._state.watch = None
        self._attach(self._first)

    def _attach(self, first: int) -> None:
        """Give the state after these steps the gradient of their decisions."""
        if not self._by_step:
            return
        done = self._state.step
        ready = {
            path: slot
            for path, slot in self._state.slots.items()
            if slot.is_written and slot.home.is_floating_point()
        }
        own = [path for path, slot in ready.items() if slot.now.requires_grad]
        if own and not self._to_all:
            self._warn_of(own[0])
            ready = {path: slot for path, slot in ready.items() if path not in own}
        if (self._state.replicates or 1) < 2:
            return  # allowed by `after_step`
        none = torch.zeros_like(next(iter(self._by_step.values())))
        steps = [self._by_step.get(step, none) for step in range(first, done)]
        until = torch.stack(steps, -1).cumsum(-1)  # (R, steps)
        for path, slot in ready.items():
            inner = slot.now
            if slot.is_series:
                parts = inner[..., :first], inner[..., first:done], inner[..., done:]
                outer = torch.cat((parts[0], _scored(parts[1], until), parts[2]), -1)
            else:
                outer = _scored(inner, until[:, -1].reshape(-1, *[1] * (inner.dim() - 1)))
            slot.now = outer
            self._inner[path] = (inner, outer)

    def after_step(self) -> None:
        """Refuse a single run whose values have no gradient but that of decisions.

        Raises: SettingError.
        """
        if not self.may_refuse or not self._by_step or self._state.watch is None:
            return
        own = any(
            slot.now.requires_grad
            for slot in self._state.slots.values()
            if slot.is_written and slot.home.is_floating_point()
        )
        if own and not self._to_all:
            self.may_refuse = False
            return
        raise SettingError(
            "draws were compared with a chance that requires a gradient, which comes from how "
            "replicates differ, and there is one run: give replicates=2 or more (hundreds for "
            "little noise), or gradient=False"
        )

    def _warn_of(self, path: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{path!r} has a gradient of torch's, and draws were compared with a chance that "
                "requires one, of which it knows nothing: gradient='score' adds what these "
                "decisions lead to; detach the chance to say that they have no gradient",
                stacklevel=6,
            )

    def end(self) -> None:
        """Forget the decisions: the next steps have others, or no gradient."""
        self._first, self._by_step, self._inner = None, {}, {}

    def _watched(self, drawn: Tensor) -> Tensor:
        return _watched(drawn, self, as_drawn=True)

    @property
    def substep(self) -> str:
        """The name of the substep that runs."""
        return self._state.substep

    def decided(self, below: Tensor, chance: Tensor) -> None:
        """Note decisions: where the draw was below its chance, and where not; (R, ...) each."""
        state = self._state
        chance = chance.clamp(0.0, 1.0).expand(below.shape)
        taken = torch.log(torch.where(below, chance, 1.0 - chance))
        by_run = taken.reshape(state.replicates or 1, -1).to(torch.float64).sum(-1)
        before = self._by_step.get(state.step)
        self._by_step[state.step] = by_run if before is None else before + by_run


def _scored(values: Tensor, scores: Tensor) -> Tensor:
    """Give values (R, ...) the gradient of scores that broadcast to them."""
    held = values.detach().to(torch.float64)
    others = (held.sum(0, keepdim=True) - held) / (len(held) - 1)
    return values + ((held - others) * (scores - scores.detach())).to(values.dtype)


class _Draws(Tensor):
    """Draws, and tensors computed from them, whose comparison with a chance is noted.

    as_drawn: whether they are as they were drawn, from 0 to 1.
    """

    scores: Scores
    as_drawn: bool

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        draws = next((a for a in args if isinstance(a, _Draws)), None)
        if draws is None or not isinstance(result, Tensor):
            return result
        if func in _BELOW or func in _ABOVE:
            _note(func, draws, args, result)
        elif result.is_floating_point():
            as_drawn = draws.as_drawn and func in _SAME_DRAWS
            result = _watched(result, draws.scores, as_drawn=as_drawn)
        return result


def _watched(values: Tensor, scores: Scores, *, as_drawn: bool) -> Tensor:
    watched = values.as_subclass(_Draws)
    watched.scores, watched.as_drawn = scores, as_drawn
    return watched


def _note(func: Callable[..., Any], draws: _Draws, args: tuple[Any, ...], result: Tensor) -> None:
    first = args[0] is draws
    chance = args[1] if first else args[0]
    wanted = isinstance(chance, Tensor) and chance.requires_grad
    if (wanted and not draws.as_drawn) or draws.requires_grad:
        raise SubstepError(
            f"substep {draws.scores.substep!r} compares what it computed from draws, and one side "
            "requires a gradient, which a comparison loses: compare state.uniform(...) as it is "
            "with a chance, or detach both sides to say that this decision has no gradient"
        )
    if wanted:
        draws.scores.decided(result if (func in _BELOW) == first else ~result, chance)
