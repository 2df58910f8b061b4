"""A single env under an autoreset mode: the reference that a vector env's row must equal."""

from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from hotloop.envs.ids import AnyEnv
from hotloop.testing.conformance.trees import snapshot


class Row(NamedTuple):
    """One env's part of a step."""

    obs: Any
    reward: Any
    terminated: bool
    truncated: bool
    final_obs: Any = None
    """In the same-step mode, at an episode's end."""


class ReferenceEnv:
    """Steps and resets one env as a vector env of that mode would."""

    def __init__(self, env: AnyEnv, mode: AutoresetMode) -> None:
        self._env = env
        self._mode = mode
        self._ended = False

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode; its observation."""
        self._ended = False
        return snapshot(self._env.reset(seed=seed)[0])

    def step(self, action: Any) -> Row:
        """One step, or the reset that is due in its place; the disabled mode's comes before it."""
        if self._ended:
            obs = self.reset()
            if self._mode == AutoresetMode.NEXT_STEP:
                return Row(obs, 0.0, False, False)
        obs, reward, terminated, truncated, _ = snapshot(self._env.step(action))
        self._ended = bool(terminated or truncated)
        if self._ended and self._mode == AutoresetMode.SAME_STEP:
            return Row(self.reset(), reward, terminated, truncated, final_obs=obs)
        return Row(obs, reward, terminated, truncated)
