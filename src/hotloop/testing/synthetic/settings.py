"""The settings of a synthetic env: how long it takes, what it returns, when it fails."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from hotloop.errors import SettingError
from hotloop.testing.synthetic.counters import COUNTER_BYTES

AnySpace = Space[Any]


@dataclasses.dataclass(frozen=True)
class Duration:
    """How long a call lasts, fixed or drawn.

    d = seconds · exp(spread · z) with z standard normal, times `straggler_factor` for a share
    `straggler_share` of the calls. `seconds` is the median of the calls that do not straggle.
    The env itself adds about 1 µs, for a vector env 10 to 30.
    """

    seconds: float = 0.0
    """Median duration, in s."""
    kind: Literal["sleep", "busy"] = "sleep"
    """Whether the time passes without the processor or on it. With 0 s neither."""
    spread: float = 0.0
    """Standard deviation of the duration's logarithm; 0 is a fixed duration."""
    straggler_share: float = 0.0
    """Share of the calls, 0 to 1, that last longer."""
    straggler_factor: float = 10.0
    """How many times longer these last."""
    precise: bool = True
    """Spin away the last 0.15 ms of a sleep. Without, no processor is used at all: what a sleep
    overshoots is taken off the next ones, so that only the mean is right. For more envs than
    cores."""

    def __post_init__(self) -> None:
        for name in ("seconds", "spread", "straggler_factor"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise SettingError(f"Duration.{name}: expected a number of at least 0, got {value}")
        if not 0 <= self.straggler_share <= 1:
            raise SettingError(
                f"Duration.straggler_share: expected 0 to 1, got {self.straggler_share}"
            )
        if self.kind not in ("sleep", "busy"):
            raise SettingError(f"Duration.kind: expected 'sleep' or 'busy', got {self.kind!r}")

    @property
    def drawn(self) -> bool:
        """Whether the duration differs between calls."""
        return self.seconds > 0 and (self.spread > 0 or self.straggler_share > 0)

    def draw_s(self, rng: np.random.Generator, parallel: int = 1) -> float:
        """The duration of one call in s; of `parallel` calls side by side, that of the longest."""
        if not self.drawn:
            return self.seconds
        factors = np.exp(self.spread * rng.standard_normal(parallel))
        factors[rng.random(parallel) < self.straggler_share] *= self.straggler_factor
        return self.seconds * float(factors.max())


@dataclasses.dataclass(frozen=True)
class Failure:
    """One planned failure.

    `raise`: a RuntimeError; `hang`: the call does not come back for `hang_s`; `exit`: the process
    exits with `exit_code`; `kill`: it is killed (SIGKILL); `segfault`: it reads address 0.
    """

    kind: Literal["raise", "hang", "exit", "kill", "segfault"]
    """The kind of failure."""
    at: int
    """In which call of the env's life, whatever its seeds, from 1; in a restarted worker a new
    life begins."""
    env_id: int | None = None
    """Which env fails; None: every one."""
    call: Literal["step", "reset"] = "step"
    """Which calls are counted."""
    once_marker: str | None = None
    """A file, made when the failure happens: while it exists, nothing that shares it fails."""
    hang_s: float = float("inf")
    """How long a hang lasts, in s."""
    exit_code: int = 3
    """What the process exits with."""

    def __post_init__(self) -> None:
        kinds = ("raise", "hang", "exit", "kill", "segfault")
        if self.kind not in kinds:
            raise SettingError(f"Failure.kind: expected one of {kinds}, got {self.kind!r}")
        if self.call not in ("step", "reset"):
            raise SettingError(f"Failure.call: expected 'step' or 'reset', got {self.call!r}")
        if self.at < 1:
            raise SettingError(f"Failure.at: expected a call's number, from 1, got {self.at}")


@dataclasses.dataclass(frozen=True)
class SyntheticSettings:
    """The settings of synthetic envs of one kind."""

    step: Duration = Duration()
    """How long a step lasts."""
    reset: Duration = Duration()
    """How long a reset lasts."""
    obs_bytes: int = 64
    """Size of an observation, one row of uint8; unless `observation_space` is given."""
    observation_space: AnySpace | None = None
    """Any Gymnasium space. A step's observation carries the counters where a leaf can."""
    action_space: AnySpace = dataclasses.field(default_factory=lambda: spaces.Discrete(2))
    """Any Gymnasium space. What an action is changes nothing but the counters."""
    episode_steps: int | tuple[int, int] = 100
    """Steps per episode: fixed, or drawn for each from a range, both ends included."""
    ending: Literal["terminated", "truncated"] = "terminated"
    """How an episode ends."""
    reward: float | tuple[float, float] = 1.0
    """Every step's reward, or the range it is drawn from."""
    info: Mapping[str, Any] | None = None
    """The info of every step and reset."""
    failures: tuple[Failure, ...] = ()
    """The planned failures."""

    def __post_init__(self) -> None:
        low, high = self.episode_range
        if not 1 <= low <= high:
            raise SettingError(
                f"SyntheticSettings.episode_steps: expected at least 1, or (low, high), got "
                f"{self.episode_steps}"
            )
        if self.ending not in ("terminated", "truncated"):
            raise SettingError(
                "SyntheticSettings.ending: expected 'terminated' or 'truncated', got "
                f"{self.ending!r}"
            )
        if self.observation_space is None and self.obs_bytes < COUNTER_BYTES:
            raise SettingError(
                f"SyntheticSettings.obs_bytes: expected at least {COUNTER_BYTES}, what the "
                f"counters take, got {self.obs_bytes}; give an observation_space for a smaller one"
            )

    @property
    def space(self) -> AnySpace:
        """The observation space."""
        if self.observation_space is not None:
            return self.observation_space
        return spaces.Box(0, 255, (self.obs_bytes,), np.uint8)

    @property
    def episode_range(self) -> tuple[int, int]:
        """The shortest and the longest episode, in steps."""
        steps = self.episode_steps
        return (steps, steps) if isinstance(steps, int) else steps
