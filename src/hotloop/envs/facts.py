"""The facts that a vector env needs of its envs, in any process; and that all are alike."""

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hotloop.envs.group import reward_shape
from hotloop.errors import TargetError


class Facts:
    """The facts of one env, which may be in another process."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any],
        autoreset_mode: AutoresetMode,
    ) -> None:
        self.is_vector = isinstance(env, gymnasium.vector.VectorEnv)
        self.observation_space: spaces.Space[Any]
        self.action_space: spaces.Space[Any]
        self.reward_shape: tuple[int, ...] = ()
        if isinstance(env, gymnasium.vector.VectorEnv):
            self.observation_space = env.single_observation_space
            self.action_space = env.single_action_space
        else:
            self.observation_space, self.action_space = env.observation_space, env.action_space
            self.reward_shape = reward_shape(env)
        self.metadata = {**env.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = env.render_mode
        self.spec = env.spec
        self.autoreset_mode = autoreset_mode

    def expect_mode(self, mode: AutoresetMode | None) -> None:
        """Refuse an autoreset mode that was asked for and that composed vector envs do not have.

        Raises: TargetError.
        """
        if mode is not None and self.autoreset_mode != mode:
            raise TargetError(
                f"vector env: autoreset_mode: expected {mode.value}, but the vector envs "
                f"have {self.autoreset_mode.value}; make them so, or leave it out"
            )

    def expect_like(self, other: "Facts", num: int) -> None:
        """Refuse env `num` where it is not like env 0, whose facts are `other`.

        Raises: TargetError.
        """
        for what in ("observation", "action"):
            expected, got = (getattr(facts, f"{what}_space") for facts in (other, self))
            if expected != got:
                raise TargetError(
                    f"vector env: {what} space of env {num}: expected env 0's, {expected}, got "
                    f"{got}; envs of one vector env must be alike"
                )
        for what in ("is_vector", "autoreset_mode", "reward_shape"):
            expected, got = getattr(other, what), getattr(self, what)
            if expected != got:
                raise TargetError(
                    f"vector env: env {num}: {what}: expected env 0's, {expected}, got {got}"
                )


def facts_of(
    envs: Sequence[gymnasium.Env[Any, Any]], autoreset_mode: AutoresetMode, first: int = 0
) -> Facts:
    """The facts of envs that are alike; `first` is the number of the first.

    Raises: TargetError where they are not.
    """
    facts = Facts(envs[0], autoreset_mode)
    for num, env in enumerate(envs[1:], first + 1):
        Facts(env, autoreset_mode).expect_like(facts, num)
    return facts
