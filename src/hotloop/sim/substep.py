"""A substep: one round of observe, act and transition for named populations.

A substep declares which parts of the state it reads and which it writes: it gets a view of what it
reads, and must return what it writes. It never changes a tensor in place.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hotloop.errors import SubstepError, nearest
from hotloop.sim.state import Slot, State, StateView


class Substep(ABC):
    """A substep: write `transition`, and `observe` and `act` where they are needed.

    Tensors are (N,) in a single run and (R, N) in an ensemble: operations along `dim=-1` serve
    both. A series of the environment, one entry a step, is returned as today's value, () or (R,).

    name: used in paths and figures; the class's name in snake case if not set.
    populations: those whose agents act.
    reads, writes: paths such as "agents/people/wealth"; in `reads` a prefix stands for all below.
    learnable: parameters by name, which calibration changes. A parameter of shape (L, 1) is a
    series of any length, for a model that repeats its last entry. A "/" in a name puts another
    name than the substep's before it in the parameter's path.

    differentiable: whether torch finds the gradient of its parameters through what it computes;
    draws that it compares with a chance have a gradient, too, see scores.py.
    acts_on: names of the settings that it acts on, such as "precision"; see `Settings.refuse_idle`.

    Every runner works with a copy of its own.
    """

    name: str = ""
    populations: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    acts_on: frozenset[str] = frozenset()
    differentiable: bool = True

    def __init__(self, **learnable: Tensor | float) -> None:
        self.name = self.name or _snake_case(type(self).__name__)
        self.learnable: dict[str, Tensor] = {
            name: value if isinstance(value, Tensor) else torch.tensor(float(value))
            for name, value in learnable.items()
        }

    def parameter(self, name: str) -> Tensor:
        """Return the present value of a learnable tensor.

        Raises: SubstepError for a name that was not given to `__init__`.
        """
        try:
            return self.learnable[name]
        except KeyError:
            raise SubstepError(
                f"substep {self.name!r} has no parameter {name!r}{nearest(name, self.learnable)}"
            ) from None

    def observe(self, state: StateView) -> Mapping[str, Any]:  # noqa: ARG002
        """Return what the agents see."""
        return {}

    def act(
        self,
        state: StateView,  # noqa: ARG002
        observation: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return what the agents decide, given what they see; by default all that they see."""
        return observation

    @abstractmethod
    def transition(self, state: StateView, action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Return a new tensor for every path in `writes`."""

    def run(self, state: StateView) -> Mapping[str, Tensor]:
        """Do one round; returns what `transition` returns."""
        return self.transition(state, self.act(state, self.observe(state)))


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def check_results(substep: Substep, results: object, state: State) -> None:
    """Check a substep's results against its declaration: paths, shapes and dtypes.

    Raises: SubstepError, naming the substep and the path.
    """
    who = f"substep {substep.name!r}"
    if not isinstance(results, Mapping):
        raise SubstepError(
            f"{who}: transition returned {type(results).__qualname__}; expected a dict from each "
            f"path in `writes` to a tensor: {', '.join(substep.writes)}"
        )
    for path in results:
        if path not in substep.writes:
            hint = nearest(str(path), substep.writes)
            raise SubstepError(f"{who} writes {path!r} without declaring it in `writes`{hint}")
    for path in substep.writes:
        if path not in results:
            raise SubstepError(
                f"{who} declares to write {path!r} and did not return it; return what it was, "
                "state[path], where nothing changes"
            )
        _check_value(f"{who}: {path!r}", results[path], state.slots[path])


def _check_value(where: str, value: object, slot: Slot) -> None:
    if not isinstance(value, Tensor):
        raise SubstepError(f"{where}: expected a tensor, got {type(value).__qualname__}")
    expected = slot.home.shape[:-1] if slot.is_series else slot.home.shape
    if value.shape != expected:
        what = "today's value of a series" if slot.is_series else "a tensor"
        raise SubstepError(
            f"{where}: expected {what} of shape {tuple(expected)}, got {tuple(value.shape)}"
        )
    if not torch.can_cast(value.dtype, slot.home.dtype):
        raise SubstepError(
            f"{where}: expected {slot.home.dtype}, got {value.dtype}, whose values would be cut; "
            f"convert it with .to({slot.home.dtype}), or declare the value as {value.dtype}"
        )
    if value.device != slot.home.device:
        raise SubstepError(
            f"{where}: expected a tensor on {slot.home.device}, got one on {value.device}; "
            "create tensors with device=state.device"
        )
