"""How the steps of one runner get a gradient, and where one that is asked for is refused.

Either the model's differentiator gives the counts of any run theirs (gradient_window.py), or torch
differentiates the substeps, whose draws have the score function (scores.py).
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hotloop.errors import SettingError
from hotloop.sim.gradient_window import GradientWindow
from hotloop.sim.parameters import Parameters
from hotloop.sim.program import Parts
from hotloop.sim.scores import Scores
from hotloop.sim.substep import Substep


class StepGradient:
    """The gradient of a runner's steps by its parameters and by values that were set.

    window: of the model's differentiator, if it has one. name: the model's, for messages.
    """

    def __init__(
        self, parts: Parts, window: GradientWindow, parameters: Parameters, name: str
    ) -> None:
        self.window = window
        self._state, self._setting, self._name = parts.state, parts.settings.gradient, name
        self._substeps: Sequence[Substep] = parts.substeps
        self._parameters = parameters
        self._scores = Scores(parts.state, to_all=self._setting == "score")
        self._has_warned = False

    @property
    def is_allowed(self) -> bool:
        """Whether the setting and torch's mode allow a gradient now."""
        return self._setting is not False and torch.is_grad_enabled()

    @property
    def is_wanted(self) -> bool:
        """Whether a parameter or a value that was set requires a gradient, and it is allowed."""
        wanted = self._parameters.require_grad or self._state.has_given
        return wanted and self.is_allowed

    def end(self) -> None:
        """Forget the steps until now: the state was put back, or they have no gradient."""
        self.window.end()
        self._scores.end()

    def after_step(self) -> None:
        """Refuse a single run whose only gradient would come from decisions.

        Raises: SettingError.
        """
        self._scores.after_step()

    @contextmanager
    def noted_decisions(
        self,
        save: Callable[[], Mapping[str, Any]],
        restore: Callable[[Mapping[str, Any]], None],
    ) -> Iterator[None]:
        """Note what the substeps in the block decide by draws.

        Where that turns out to give no gradient, the state is put back: no step was done.
        """
        saved = save() if self._scores.may_refuse else None
        try:
            with self._scores.noted():
                yield
        except SettingError:
            if saved is not None:
                restore(saved)
            raise

    def refuse_lost(self) -> None:
        """Refuse a parameter that requires a gradient in a substep through which torch finds none.

        Raises: SettingError.
        """
        for substep in self._substeps:
            asked = [name for name, value in substep.learnable.items() if value.requires_grad]
            if asked and not substep.differentiable:
                raise SettingError(
                    f"parameter {asked[0]!r} of substep {substep.name!r} requires a gradient, and "
                    f"torch finds none through {type(substep).__name__}: give the Model the "
                    "gradient that belongs to it, or run with gradient=False"
                )

    def warn_of_lost(self) -> None:
        """Warn once where a parameter requires a gradient and no value of the state has one."""
        slots = self._state.slots.values()
        if self._has_warned or any(slot.now.requires_grad for slot in slots):
            return
        self._has_warned = True
        warnings.warn(
            f"model {self._name!r}: a parameter requires a gradient, and after "
            f"{self._state.step} steps no value of the state has one: what depends on it was "
            "detached, rounded or compared",
            stacklevel=3,
        )
