"""The settings that all learners share, and the limits of every setting of a learner."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from hotloop.errors import SettingError, expect_whole

# Limits of the real numbers among the settings: least, most, and whether the least is allowed.
_LIMITS: dict[str, tuple[float, float, bool]] = {
    "learning_rate": (0, math.inf, False),
    "clip": (0, math.inf, False),
    "gamma": (0, 1, True),
    "gae_lambda": (0, 1, True),
    "trace_lambda": (0, 1, True),
    "value_weight": (0, math.inf, True),
    "entropy_weight": (0, math.inf, True),
    "max_grad_norm": (0, math.inf, False),
    "clip_rho": (0, math.inf, False),
    "clip_pg_rho": (0, math.inf, False),
    "replay_ratio": (0, math.inf, False),
    "epsilon": (0, 1, True),
    "epsilon_spread": (0, math.inf, True),
    "priority_exponent": (0, 1, True),
    "importance_exponent": (0, 1, True),
}
_MAY_BE_INFINITE = ("clip", "clip_rho", "clip_pg_rho", "max_grad_norm")  # which is no limit
_FROM_ZERO = (
    "seed",
    "max_lag",
    "restarts",
    "hidden_layers",
    "replay_shards",
)  # counts that may be 0


@dataclass(frozen=True)
class LearnerSettings:
    """What every learner depends on; each has settings of its own beside these.

    Raises: SettingError for settings that do not fit.
    """

    algorithm: ClassVar[str] = ""
    """The name of the learner, as in `ppo:CartPole-v1`."""

    env_id: str = "CartPole-v1"
    """Gymnasium id of the env; "module:id" imports the module first."""
    seed: int = 1
    """Seeds the envs (seed, seed + 1, ...), the first parameters and the actions."""
    total_steps: int = 80_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 8
    """Envs stepped side by side (B)."""
    backend: str = "serial"
    """Where the envs are stepped: serial (this process), process or ray."""
    num_workers: int | None = None
    """Worker processes or Ray actors; not with serial. None takes what suits the machine."""
    fragment_steps: int = 32
    """Steps of every env between two updates (T)."""
    network: str = "auto"
    """mlp, nature_cnn, impala_cnn, or module:function; auto takes what suits the observations."""
    hidden_size: int = 64
    """Units of each hidden layer of an mlp, in the actor and in the critic."""
    hidden_layers: int = 2
    """Hidden layers of an mlp, of the actor and of the critic."""
    normalise_observations: bool = False
    """Whether observations are shifted and scaled by their running mean and deviation."""
    normalise_values: bool = False
    """Whether the critic learns returns shifted and scaled by their running mean and deviation."""
    learning_rate: float = 5e-3
    """Adam's step size at the start."""
    anneal: bool = True
    """Whether the learning rate falls linearly, to nothing at `total_steps`."""
    gamma: float = 0.98
    """Discount a step."""
    max_grad_norm: float = 0.5
    """Longer gradients are shortened to this Euclidean norm."""
    torch_threads: int = 1
    """Threads of torch in this process; small networks are fastest on one."""
    device: str = "cpu"
    """Where the policy learns: cpu, or a device of torch such as cuda."""
    evaluate_every: int = 2048
    """Env steps between two greedy evaluations, which no reported time contains."""
    target_return: float = math.nan
    """Mean greedy return that solves the env; not a number takes the env's own threshold."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, name = getattr(self, field.name), f"{self.algorithm}: {field.name}"
            if field.type is int:
                expect_whole(name, value, 0 if field.name in _FROM_ZERO else 1)
            if field.name in _LIMITS:
                _expect_within(name, value, *_LIMITS[field.name])
                if math.isinf(value) and field.name not in _MAY_BE_INFINITE:
                    raise SettingError(f"{name}: expected a finite number, got {value}")
        if math.isinf(self.target_return):
            raise SettingError(
                f"{self.algorithm}: target_return: expected a return that can be reached, got "
                f"{self.target_return}"
            )
        expect_whole(f"{self.algorithm}: num_workers", self.num_workers, 1)
        if self.backend == "serial":
            self._expect_unset("num_workers", None)

    def _expect_unset(self, name: str, unset: object) -> None:
        """Refuse a setting that needs workers where there are none."""
        value = getattr(self, name)
        if value != unset:
            raise SettingError(
                f"{self.algorithm}: {name}: expected none with backend 'serial', which steps all "
                f"envs in this process, got {value}; leave it out, or choose another backend, such "
                "as 'process'"
            )

    @property
    def batch_steps(self) -> int:
        """Env steps of one fragment of all envs."""
        return self.num_envs * self.fragment_steps


def _expect_within(name: str, value: float, least: float, most: float, least_too: bool) -> None:
    inside = least <= value <= most if least_too else least < value <= most
    if not inside:
        limits = f"{'from' if least_too else 'above'} {least:g}"
        raise SettingError(
            f"{name}: expected a number {limits}{'' if math.isinf(most) else f' to {most:g}'}, "
            f"got {value}"
        )
