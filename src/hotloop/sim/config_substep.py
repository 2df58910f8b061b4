"""A substep made of the functions that a model file names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hotloop.errors import SubstepError, nearest
from hotloop.sim.state import StateView
from hotloop.sim.substep import Substep


@dataclass(frozen=True)
class Function:
    """One function of a substep, with its inputs and outputs.

    function: (state, inputs, **arguments) for an observation; a policy and a transition get the
    observation or the action before the inputs. Returns a dict with its outputs.
    inputs: paths, by the names under which the function gets their tensors.
    outputs: names, and for a transition the paths they are written to.
    arguments: constants by name. learnable: names of parameters, passed with their present values.
    """

    name: str
    function: Callable[..., Mapping[str, Any]]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    arguments: Mapping[str, Any]
    learnable: Sequence[str] = ()

    def parameter_key(self, argument: str) -> str:
        """Return the key under which the substep keeps a parameter of this function."""
        return f"{self.name}/{argument}"


class ConfigSubstep(Substep):
    """Runs its functions in their order; each sees the state as it was before the substep."""

    def __init__(
        self,
        name: str,
        populations: Sequence[str],
        observation: Sequence[Function],
        policy: Sequence[Function],
        transition: Sequence[Function],
        learnable: Mapping[str, Tensor],
    ) -> None:
        self.name = name
        super().__init__(**learnable)
        self.populations = tuple(populations)
        self._observation, self._policy, self._transition = observation, policy, transition
        every = (*observation, *policy, *transition)
        self.reads = tuple(dict.fromkeys(path for f in every for path in f.inputs.values()))
        self.writes = tuple(path for f in transition for path in f.outputs.values())

    def observe(self, state: StateView) -> Mapping[str, Any]:
        """Merge what the observations return."""
        seen: dict[str, Any] = {}
        for function in self._observation:
            seen |= self._call(function, state)
        return seen

    def act(self, state: StateView, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Merge what the policies return; without any, return the observation."""
        if not self._policy:
            return observation
        chosen: dict[str, Any] = {}
        for function in self._policy:
            chosen |= self._call(function, state, observation)
        return chosen

    def transition(self, state: StateView, action: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Return what the transitions return, by the paths that it is written to."""
        return {
            function.outputs[name]: value
            for function in self._transition
            for name, value in self._call(function, state, action).items()
        }

    def _call(self, function: Function, state: StateView, *before: Any) -> Mapping[str, Any]:
        inputs = {name: state[path] for name, path in function.inputs.items()}
        learnable = {a: self.learnable[function.parameter_key(a)] for a in function.learnable}
        found = function.function(state, *before, inputs, **function.arguments, **learnable)
        where = f"substep {self.name!r}: {function.name!r}"
        if not isinstance(found, Mapping):
            raise SubstepError(
                f"{where} returned {type(found).__qualname__}; expected a dict with its "
                f"output_variables: {', '.join(function.outputs)}"
            )
        for name in found:
            if name not in function.outputs:
                raise SubstepError(
                    f"{where} returned {name!r}, which is none of its output_variables"
                    f"{nearest(str(name), function.outputs)}"
                )
        for name in function.outputs:
            if name not in found:
                raise SubstepError(f"{where} did not return its output variable {name!r}")
        return found
