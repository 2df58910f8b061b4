"""A policy: observations and actions of every kind around one network of actor and critic.

Everything with gradients works on tensors, everything that acts on NumPy arrays; both use the
same memory. The tests prove the two equal.
"""

import math
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotloop.data.layout import Tree
from hotloop.errors import DeviceError, SettingError, ShapeError, did_you_mean, expect_whole
from hotloop.learn.policies.actor import ACTIVATIONS, Actor, Forward, Weights, take_over
from hotloop.learn.policies.actor_critic import ActorCritic
from hotloop.learn.policies.distributions import Actions, ActionSpec, Floats
from hotloop.learn.policies.explorer import Explorer
from hotloop.learn.policies.masks import FORBIDDEN, ActionMask, split_space
from hotloop.learn.policies.networks import (
    ACTIVATION,
    HIDDEN_LAYERS,
    HIDDEN_SIZE,
    INITIAL_STD,
    NetworkFunction,
    NetworkRequest,
    make_network,
)
from hotloop.learn.policies.observations import Observations
from hotloop.learn.policies.tensors import to_tensors
from hotloop.ops import Moments, merge_moments, no_moments

_EPSILON = 1e-8  # added to variances: an entry that is always the same stays finite


def make_policy(
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
    *,
    network: str | NetworkFunction = "auto",
    hidden_size: int = HIDDEN_SIZE,
    hidden_layers: int = HIDDEN_LAYERS,
    activation: str = ACTIVATION,
    initial_std: float = INITIAL_STD,
    normalise_observations: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> "Policy":
    """Make a policy for the spaces of an env.

    Observations: Box, Discrete and MultiDiscrete (one-hot), MultiBinary, and Dict and Tuple of
    them, nested. A Dict with the key "action_mask" says which actions are allowed.
    network: "auto" takes the perceptron, or the Nature CNN where there is an image; see
    `NETWORKS`. "module:function" or a function makes a module of features, `NetworkFunction`; the
    heads of actor and critic are put on it.
    hidden_size, hidden_layers: units and number of the perceptron's hidden layers. activation:
    between them, "tanh" or "relu".
    initial_std: standard deviation of continuous actions before anything is learned.
    normalise_observations: of the perceptron: each entry of the flat vector by its running mean
    and standard deviation, see `Policy.update_moments`.
    seed: the same one gives the same parameters.

    Raises: TargetError for spaces or networks that do not fit, SettingError for settings,
    DeviceError for a device that is not there.
    """
    expect_whole("policy: hidden_size", hidden_size, 1)
    expect_whole("policy: hidden_layers", hidden_layers, 1)
    expect_whole("policy: seed", seed, 0)
    _expect_activation(activation)
    actions = ActionSpec.of(action_space)
    _expect_std(initial_std, actions, action_space)
    rest, mask = split_space(observation_space, actions.distribution)
    observations = Observations.of(rest)
    scaling = _scaling(no_moments((observations.inputs,))) if normalise_observations else None
    request = NetworkRequest(
        space=rest,
        observations=observations,
        distribution=actions.distribution,
        hidden_size=hidden_size,
        hidden_layers=hidden_layers,
        activation=activation,
        initial_std=initial_std,
        scaling=scaling,
        seed=seed,
        device=_device(device),
    )
    return Policy(observations, actions, mask, make_network(network, request), scaling)


class Policy:
    """From observations to distributions of actions, and to values; see `make_policy`.

    flat: all parameters, one vector. grad: their gradient, which `backward` adds up and which
    stays the same tensor: zero it, do not replace it.
    actions: what an action is. distribution: of the actions, for the outputs of the actor.
    action_dtype: of the actions that are stored and learned from. draws_for_env: whether the env
    takes actions as they are drawn; else `for_env(actions)` puts them into its bounds and type. It
    can be sent to workers, and brings neither the policy nor torch along.
    obs_dtype: in which observations are stored: single precision for vectors of floats; None
    stores them as the env gives them: with images, and with values that are not floats.
    """

    def __init__(
        self,
        observations: Observations,
        actions: ActionSpec,
        mask: ActionMask | None,
        network: ActorCritic,
        scaling: Floats | None,
    ) -> None:
        self.network = network
        self.flat, self.grad = network.flat, network.grad
        self.actions, self.distribution = actions, actions.distribution
        self.action_dtype, self.draws_for_env = actions.dtype, actions.draws_for_env
        self.for_env = actions.for_env
        self.obs_dtype = observations.stored_dtype
        self._observations, self._mask = observations, mask
        self._forward = Forward(network.acting, mask)
        self._scaling = scaling
        self._moments = None if scaling is None else no_moments((observations.inputs,))

    # --- learning ----------------------------------------------------------------------------

    def tensors(self, obs: Tree) -> Any:
        """Return observations as the policy takes them: a tree of tensors on its device.

        obs: tree of arrays (..., *shape), as stored.
        """
        return to_tensors(self.prepared(obs), self.flat.device)

    def prepared(self, obs: Tree) -> Tree:
        """Return what `tensors` brings to the device, as arrays.

        For the perceptron (..., inputs), normalised by the present moments; with an action mask
        the pair (arrays, allowed (..., logits)).
        """
        if self._mask is None:
            return self.network.acting.prepared(obs)
        rest, allowed = self._mask.split(obs)
        return self.network.acting.prepared(rest), allowed

    def __call__(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return outputs (N, size), masked, and values (N,), differentiable.

        obs: what `tensors` gives, with one leading dimension.
        """
        rest, allowed = (obs, None) if self._mask is None else obs
        # Under autocast they are bfloat16; distributions and errors need single precision.
        outputs, value = (output.float() for output in self.network(rest))
        return outputs if allowed is None else outputs.masked_fill(~allowed, FORBIDDEN), value

    # --- acting ------------------------------------------------------------------------------

    def outputs(self, obs: Tree) -> tuple[Floats, Floats]:
        """Compute outputs (B, size), masked, and values (B,) without gradients.

        obs: tree of arrays (B, ...), of any type. An observation that allows no action is taken
        here, for its value; only acting on it is an error.
        """
        return self._forward(obs)

    def greedy(self, obs: Tree) -> Actions:
        """Return the likeliest action for each observation, as the env takes it.

        Raises: TargetError for an observation whose mask allows no action.
        """
        outputs, _ = self._forward.to_act(obs)
        return self.for_env(self.distribution.mode(outputs))

    def actor(self, seed: int | np.random.Generator) -> Actor:
        """Return an actor that always acts by the newest parameters; pickled, a copy of its own.

        seed: of its draws, or the generator to draw from.
        """
        return Actor(self._forward, self.actions, np.random.default_rng(seed))

    def explorer(
        self,
        seed: int | np.random.Generator,
        *,
        dueling: bool,
        share: NDArray[np.float64],
    ) -> Explorer:
        """Return an actor that takes the best action, or with each env's own share any.

        Raises: as `Explorer`.
        """
        rng = np.random.default_rng(seed)
        return Explorer(self._forward, self.actions, rng, dueling=dueling, share=share)

    def weights(self) -> Weights:
        """Return a copy of what actors elsewhere need, for their `load_weights`."""
        return Weights(self._parameters(), None if self._scaling is None else self._scaling.copy())

    # --- normalisation and state ---------------------------------------------------------------

    def update_moments(self, obs: Tree) -> None:
        """Count observations (..., *shape) into the running moments.

        Tensors made before keep the older moments. To see the same observations when acting and
        when learning, call this between the update and the next fragment.
        Raises: SettingError if the policy does not normalise.
        """
        if self._moments is None:
            raise SettingError(
                "policy: update_moments: expected a policy made with normalise_observations=True, "
                "got one without moments; leave the call out"
            )
        rest = obs if self._mask is None else self._mask.split(obs)[0]
        vectors = self._observations.vector(rest).reshape(-1, self._observations.inputs)
        self._set_moments(merge_moments(self._moments, vectors))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return a copy of parameters and moments, as arrays by name."""
        state: dict[str, NDArray[Any]] = {"parameters": self._parameters()}
        if self._moments is not None:
            state |= {
                "count": np.array(self._moments.count, np.int64),
                "mean": self._moments.mean.copy(),
                "variance": self._moments.variance.copy(),
            }
        return state

    def load_state_dict(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what `state_dict` gave, in place.

        Raises: ShapeError for the state of another policy; nothing is changed then.
        """
        held = self.state_dict()
        if set(state) != set(held):
            raise ShapeError(
                f"policy: state: expected {sorted(held)}, got {sorted(state)}; make the policy "
                "with the settings of the one that was saved"
            )
        for name, array in held.items():
            take_over(array, state[name], f"policy: state: {name}")
        # By way of data: an optimiser's graph that waits for its backward pass stays valid.
        self.flat.data.copy_(torch.from_numpy(held.pop("parameters")))
        if held:
            count, mean, variance = held["count"], held["mean"], held["variance"]
            self._set_moments(Moments(int(count), mean, variance))

    def _parameters(self) -> Floats:
        return self.flat.detach().cpu().numpy().copy()

    def _set_moments(self, moments: Moments) -> None:
        assert self._scaling is not None
        self._moments = moments
        # In place: the actors of this process look at the same array.
        np.copyto(self._scaling, _scaling(moments))


def _expect_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise SettingError(
            f"policy: activation: expected {' or '.join(map(repr, ACTIVATIONS))}, got "
            f"{activation!r}{did_you_mean(str(activation), ACTIVATIONS)}"
        )


def _expect_std(initial_std: float, actions: ActionSpec, space: gymnasium.Space[Any]) -> None:
    """Refuse a standard deviation that cannot be, and one where no action has any."""
    if not 0 < initial_std < math.inf:
        raise SettingError(
            f"policy: initial_std: expected a finite number above 0, got {initial_std}"
        )
    if initial_std != INITIAL_STD and not actions.distribution.free:
        raise SettingError(
            f"policy: initial_std: expected none for actions that are choices, got {initial_std} "
            f"for {space}; leave it out, as only the actions of a Box have a standard deviation"
        )


def _scaling(moments: Moments) -> Floats:
    """Return means and one over standard deviations, (2, inputs)."""
    scale = 1 / np.sqrt(moments.variance + _EPSILON)
    return np.stack((moments.mean, scale)).astype(np.float32)


def _device(wanted: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=wanted).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise DeviceError(
            f"policy: device: expected one of this machine and of this build of torch, got "
            f"{str(wanted)!r} ({error}); take 'cpu'"
        ) from error
