"""Several envs in this process, stepped one after the other: the engine that the others carry.

It is also the one to debug with: an exception comes up where it was raised.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.envs.make import AnyEnv
from hotloop.errors import TargetError

Array = NDArray[Any]
Step = tuple[Array, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class SerialVectorEnv(VectorEnv[Array, Array, Array]):
    """Gymnasium's vector contract over plain envs, with observations as one array.

    An env that ends is reset within the same step: the observation returned is the new episode's
    first, the one truly arrived at is `infos["final_obs"][env]`. Arrays returned are the caller's
    to keep. `reset(seed=s)` seeds env i with s + i.

    Equal to `gymnasium.vector.SyncVectorEnv(..., autoreset_mode=SAME_STEP)` bit for bit, except
    that an env of discrete actions is handed a Python int.
    """

    def __init__(self, env_fns: Sequence[Callable[[], AnyEnv]]) -> None:
        self.envs = [env_fn() for env_fn in env_fns]
        if not self.envs:
            raise TargetError("vector env: expected at least one env, got none")
        first = self.envs[0]
        if not isinstance(first.observation_space, spaces.Box):
            raise TargetError(
                f"vector env: observations: expected one Box, got {first.observation_space}; "
                "wrap the env, for instance with gymnasium.wrappers.FlattenObservation"
            )
        for i, env in enumerate(self.envs):
            pairs = (
                ("observation", first.observation_space, env.observation_space),
                ("action", first.action_space, env.action_space),
            )
            for what, expected, got in pairs:
                if got != expected:
                    raise TargetError(
                        f"vector env: {what} space of env {i}: expected env 0's, {expected}, "
                        f"got {got}; envs of one vector env must be alike"
                    )
        self.num_envs = len(self.envs)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = first.render_mode
        self.spec = first.spec
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, self.num_envs)
        self.action_space = batch_space(first.action_space, self.num_envs)
        shape, dtype = first.observation_space.shape, first.observation_space.dtype
        self._obs = np.zeros((self.num_envs, *shape), dtype)
        self._reward = np.zeros(self.num_envs, np.float64)
        self._terminated = np.zeros(self.num_envs, np.bool_)
        self._truncated = np.zeros(self.num_envs, np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every env; an int seeds env i with `seed + i`."""
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        infos: dict[str, Any] = {}
        for i, (env, env_seed) in enumerate(zip(self.envs, seeds, strict=True)):
            self._obs[i], info = env.reset(seed=env_seed, options=options)
            if info:
                infos = self._add_info(infos, info, i)
        return self._obs.copy(), infos

    def step(self, actions: Array) -> Step:
        """One step of every env; those that end are reset, see the class."""
        obs, reward = self._obs, self._reward
        terminated, truncated = self._terminated, self._truncated
        infos: dict[str, Any] = {}
        discrete = isinstance(self.single_action_space, spaces.Discrete)
        for i, action in enumerate(actions.tolist() if discrete else actions):
            env = self.envs[i]
            arrived, reward[i], ended, cut, info = env.step(action)
            terminated[i], truncated[i] = ended, cut
            if ended or cut:
                infos = self._add_info(infos, {"final_obs": arrived, "final_info": info}, i)
                arrived, info = env.reset()
            obs[i] = arrived
            if info:
                infos = self._add_info(infos, info, i)
        return obs.copy(), reward.copy(), terminated.copy(), truncated.copy(), infos

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Close every env."""
        for env in self.envs:
            env.close()
