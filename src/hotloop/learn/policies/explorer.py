"""Acting by action values: the best action, or with a small probability any.

The network of actor and critic serves as a dueling one (Wang et al. 2016): the critic's output is
V, those of the actor are the advantages, and Q = V + A − mean A.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Tree
from hotloop.errors import TargetError
from hotloop.learn.policies.actor import Actor, Forward
from hotloop.learn.policies.distributions import Actions, ActionSpec, Categorical, Floats
from hotloop.learn.policies.masks import FORBIDDEN


def action_values(outputs: Any, value: Any, *, dueling: bool) -> Any:
    """Return Q (N, actions) from a network's outputs (N, actions), masked, and values (N,).

    Of NumPy's arrays or of tensors.

    Qₐ = V + Aₐ − mean A, the mean of the allowed actions; without dueling, Q is A. That of a
    forbidden action is very low.
    Source: Wang et al. 2016, equation 9.
    """
    if not dueling:
        return outputs
    allowed = outputs > FORBIDDEN / 2
    mean = (outputs * allowed).sum(1) / allowed.sum(1)
    return outputs + (value - mean)[:, None]


def epsilons(count: int, epsilon: float, spread: float) -> NDArray[np.float64]:
    """Return the share of random actions of each env: εᵢ = ε^(1 + spread · i / (N − 1)).

    Returns: (N,); the last env explores least. A single env has ε.
    Source: Horgan et al. 2018, section 4.1.
    """
    i = np.arange(count) / max(1, count - 1)
    return np.asarray(epsilon ** (1 + spread * i))


class Explorer(Actor):
    """A policy as a collector calls it: the best action, or with probability εᵢ one at random.

    share: (N,), ε of every env of all actors, see `epsilons`.

    Raises: TargetError for actions that are not one choice among several.
    """

    def __init__(
        self,
        forward: Forward,
        actions: ActionSpec,
        rng: np.random.Generator,
        *,
        dueling: bool,
        share: NDArray[np.float64],
    ) -> None:
        super().__init__(forward, actions, rng)
        self._choice = single_choice(actions)
        self._dueling, self._share = dueling, share
        self._here = share  # of the envs that this copy acts for

    def act_for(self, env_ids: NDArray[np.integer[Any]]) -> None:
        """Act for these envs from now on, in this order."""
        self._here = self._share[env_ids]

    def __call__(self, obs: Tree) -> tuple[Actions, dict[str, Floats]]:
        """Return actions (B,), their Q, and the largest Q of the observations.

        Raises: TargetError for an observation whose mask allows no action.
        """
        outputs, value = self._forward.to_act(obs)
        q = action_values(outputs, value, dueling=self._dueling)
        choice = q.argmax(1)
        best = q[np.arange(len(q)), choice]
        explores = np.flatnonzero(self.rng.random(len(q)) < self._here)
        if len(explores):
            # Of equally likely numbers, the largest among the allowed actions.
            number = self.rng.random((len(explores), q.shape[1]))
            choice[explores] = np.where(outputs[explores] > FORBIDDEN / 2, number, -1).argmax(1)
        taken = q[np.arange(len(q)), choice]
        return choice + self._choice.start, {"q": taken, "best": best}


def single_choice(actions: ActionSpec) -> Categorical:
    """Return the choice that an action is. Raises: TargetError for other actions."""
    if not isinstance(actions.distribution, Categorical):
        raise TargetError(
            "action values: expected a Discrete action space, one choice among several, got one "
            "of several choices or of real numbers; train it with ppo, appo or impala"
        )
    return actions.distribution
