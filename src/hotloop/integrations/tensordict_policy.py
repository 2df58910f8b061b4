"""A TensorDictModule in a fragment worker, and how observations and keys travel as arrays.

Apart from the collector, which the workers do not need.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import NestedKey, TensorDict
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.errors import TargetError
from hotloop.integrations.actors import OwnGenerators

Array = NDArray[Any]
Weights = Mapping[str, Array]
SEPARATOR = "\x1f"  # joins the parts of a nested key; no key contains it
ONE_HOT = SEPARATOR + "one-hot action"  # the extra that keeps it; no key begins like this


class TensorDictPolicy:
    """A TensorDictModule as a policy of `FragmentCollector`: arrays in and out."""

    def __init__(
        self, module: TensorDictModuleBase, one_hot: bool, exploration_type: ExplorationType
    ) -> None:
        self.module, self.one_hot, self.exploration_type = module, one_hot, exploration_type
        self.generators = OwnGenerators()
        self._checked = False

    def seed(self, seed: int) -> None:
        """Draw from generators of this seed from now on."""
        self.generators.seed(seed)

    def load_weights(self, weights: Weights) -> None:
        """Act by these weights from now on."""
        self.module.load_state_dict(
            {name: torch.from_numpy(np.array(values)) for name, values in weights.items()}
        )

    def __call__(self, obs: Tree) -> tuple[Array, dict[str, Array]]:
        """Return actions (b, …), and everything else that the module writes."""
        # A copy: envs may write over the observations that they handed out.
        given = TensorDict(observations(tree_map(np.array, obs)), len(next(leaves(obs))))
        if not self._checked:
            self._check(given)
        with (
            torch.no_grad(),
            set_exploration_type(self.exploration_type),
            self.generators.in_use(),
        ):
            written = self.module(given.copy())
        known = set(given.keys(True, True))
        extras = {
            SEPARATOR.join((key,) if isinstance(key, str) else key): value.numpy()
            for key, value in written.items(True, True)
            if key not in known and key != "action"
        }
        action: Array = written["action"].numpy()
        if self.one_hot:
            return action.argmax(-1), {**extras, ONE_HOT: action}
        return action, extras

    def _check(self, given: TensorDict) -> None:
        """Refuse a module that reads or lacks what it must not, before it acts."""
        known = list(given.keys(True))
        missing: list[NestedKey] = [key for key in self.module.in_keys if key not in known]
        if missing:
            raise TargetError(
                f"policy: in_keys: expected keys of the observations, {known}, got {missing}; "
                "states of recurrent policies are not kept"
            )
        if "action" not in self.module.out_keys:
            raise TargetError(
                f"policy: out_keys: expected 'action' among them, got {self.module.out_keys}"
            )
        self._checked = True


def observations(obs: Tree) -> dict[str, Any]:
    """Return observations by TorchRL's keys: "observation", or those of a Dict."""
    if isinstance(obs, np.ndarray) and not obs.dtype.hasobject:
        return {"observation": obs}
    if isinstance(obs, Mapping):
        return {name: _nested(name, values) for name, values in obs.items()}
    raise _not_representable("observation", obs)


def _nested(name: str, values: Tree) -> Any:
    if isinstance(values, Mapping):
        return {key: _nested(f"{name}.{key}", value) for key, value in values.items()}
    if isinstance(values, np.ndarray) and not values.dtype.hasobject:
        return values
    raise _not_representable(name, values)


def _not_representable(name: str, values: Any) -> TargetError:
    kind = "objects" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
    return TargetError(
        f"{name}: expected an array of numbers or a Dict of them, which a TensorDict can hold, got "
        f"{kind}; change the observation space with a wrapper"
    )
