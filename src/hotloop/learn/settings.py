"""The settings that all learners share, and the limits of every setting of a learner."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from hotloop.errors import SettingError, did_you_mean, expect_whole
from hotloop.learn.policies.actor import ACTIVATIONS
from hotloop.loop.host import usable_cpus
from hotloop.rollout.inference import InferenceSettings
from hotloop.rollout.pools import check_resources
from hotloop.rollout.worker_pool import Resources

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
    "initial_std": (0, math.inf, False),
    "replay_ratio": (0, math.inf, False),
    "epsilon": (0, 1, True),
    "epsilon_spread": (0, math.inf, True),
    "priority_exponent": (0, 1, True),
    "importance_exponent": (0, 1, True),
}
_MAY_BE_INFINITE = ("clip", "clip_rho", "clip_pg_rho", "max_grad_norm")  # which is no limit
HEAD, ENVS, SERVER, AUTO = "head", "envs", "server", "auto"
FLOAT32, BFLOAT16 = "float32", "bfloat16"
PLAIN, COMPILE, GRAPH, PINNED = "plain", "compile", "graph", "pinned"
_CHOICES: dict[str, tuple[str, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "precision": (FLOAT32, BFLOAT16),
    "compiled": (PLAIN, COMPILE, GRAPH),
    "transfer": (PLAIN, PINNED),
}
# Those that need a card, with the reason.
_OF_CARDS = {"compiled": (GRAPH, "has no CUDA graphs"), "transfer": (PINNED, "needs no copies")}
PLACES = (HEAD, ENVS, SERVER)
"""Where a policy may act, the place with the fewest processes first."""
# Settings that act with an inference server only, and with workers that policies act beside.
_OF_SERVERS = ("server_batch", "server_deadline_s", "server_timeout_s", "server_device")
_OF_WORKERS = ("restarts", *Resources._fields)
# Counts that may be 0.
_FROM_ZERO = ("seed", "max_lag", "restarts", "hidden_layers", "replay_shards")


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
    policy_at: str = HEAD
    """Where the policy acts: head (this process), envs (a copy beside the envs of each worker),
    server (one inference server for all workers), or auto, which measures."""
    server_batch: int | None = None
    """Observations of a batch that an inference server answers at once; None: no limit."""
    server_deadline_s: float = 0.001
    """For so long, in seconds, a request to an inference server waits for others."""
    server_timeout_s: float | None = 60.0
    """An inference server that answers nothing for so long, in seconds, is replaced; None: never.
    The slowest batch must take less."""
    server_device: str = "cpu"
    """Where an inference server computes: cpu, or a device of torch such as cuda."""
    restarts: int = 3
    """How many workers that died may be replaced; what an env raises is raised here."""
    num_cpus: float = 1.0
    """Cores that each worker, and an inference server, asks of Ray's scheduler."""
    num_gpus: float = 0.0
    """Cards, or a share of one, that each worker asks for, or in their place the server."""
    placement: str = "spread"
    """Whether Ray's workers spread over the nodes or pack on few of them."""
    copy: bool = True
    """Whether what the envs return is copied before it is stored; no result depends on it."""
    fragment_steps: int = 32
    """Steps of every env between two updates (T)."""
    network: str = "auto"
    """mlp, nature_cnn, nature_cnn_layer_norm, impala_cnn, or module:function; auto takes what suits
    the observations."""
    hidden_size: int = 64
    """Units of each hidden layer of an mlp, in the actor and in the critic."""
    hidden_layers: int = 2
    """Hidden layers of an mlp, of the actor and of the critic."""
    activation: str = "tanh"
    """What stands between the layers of an mlp: tanh or relu."""
    initial_std: float = 1.0
    """Standard deviation of continuous actions at the start; it is learned from there on."""
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
    """Threads of torch here and in an inference server; small networks are fastest on one."""
    device: str = "cpu"
    """Where the policy learns: cpu, or a device of torch such as cuda."""
    precision: str = FLOAT32
    """float32, or bfloat16: the network's products in half the bytes; parameters stay float32."""
    compiled: str = PLAIN
    """How an optimiser step runs: plain (operation by operation), compile (the loss through
    torch.compile), or graph (all of it captured as one CUDA graph)."""
    transfer: str = PLAIN
    """How batches come to a card: plain, or pinned (from two pinned buffers; where an update has
    several batches, one is copied while the one before is learned from)."""
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
        self._check_choices()
        self._check_place()

    def _check_choices(self) -> None:
        """Refuse names that there are not, and ways of an optimiser step that want a card."""
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise SettingError(
                    f"{self.algorithm}: {name}: expected {', '.join(map(repr, choices))}, got "
                    f"{value!r}{did_you_mean(str(value), choices)}"
                )
        for name, (value, why) in _OF_CARDS.items():
            if getattr(self, name) == value and not self.device.startswith("cuda"):
                raise SettingError(
                    f"{self.algorithm}: {name}: expected another one than {value!r} with device "
                    f"{self.device!r}, which {why}; leave it out, or choose device 'cuda'"
                )

    def _check_place(self) -> None:
        """Refuse settings of workers and servers where there are none of them."""
        if self.policy_at not in (*PLACES, AUTO):
            raise SettingError(
                f"{self.algorithm}: policy_at: expected {', '.join(map(repr, (*PLACES, AUTO)))}, "
                f"got {self.policy_at!r}{did_you_mean(self.policy_at, (*PLACES, AUTO))}"
            )
        usual = self._usual()
        if self.backend == "serial":
            where = "backend 'serial', which does everything in this process"
            for name in ("num_workers", "policy_at"):
                self._expect_unset(name, usual[name], where, "choose another backend: 'process'")
        elif self.backend == "auto" and self.policy_at != HEAD:
            raise SettingError(
                f"{self.algorithm}: policy_at: expected 'head' with backend 'auto', got "
                f"{self.policy_at!r}; choose the backend as well, such as 'process'"
            )
        if self.policy_at not in (SERVER, AUTO):
            where = f"policy_at {self.policy_at!r}, which needs no inference server"
            for name in _OF_SERVERS:
                self._expect_unset(name, usual[name], where, "choose policy_at 'server'")
        if self.policy_at == HEAD:
            where = "policy_at 'head', where the engine of the envs sees to its workers"
            for name in self._of_workers():
                self._expect_unset(name, usual[name], where, "choose policy_at 'envs'")
        try:
            self.inference_settings()
            check_resources(self.backend, Resources(self.num_cpus, self.num_gpus, self.placement))
        except SettingError as error:
            raise SettingError(f"{self.algorithm}: {error}") from None
        if self.policy_at != HEAD:
            _ = self.num_actors

    def at(self, place: str) -> Self:
        """Settings for a policy at another place, without those that would not act there."""
        idle = [
            *(() if place == SERVER else _OF_SERVERS),
            *(self._of_workers() if place == HEAD else ()),
        ]
        usual = self._usual()
        return replace(self, policy_at=place, **{name: usual[name] for name in idle})

    def _of_workers(self) -> tuple[str, ...]:
        """Settings that act only with workers that a policy acts beside; shards have restarts."""
        shards = getattr(self, "replay_shards", 0)
        return tuple(name for name in _OF_WORKERS if not (shards and name == "restarts"))

    @classmethod
    def _usual(cls) -> dict[str, Any]:
        """The defaults, by name."""
        return {field.name: field.default for field in fields(cls)}

    def _expect_unset(self, name: str, unset: object, where: str, instead: str) -> None:
        """Refuse a setting that would not act."""
        value = getattr(self, name)
        if value != unset:
            expected = repr(unset) if isinstance(unset, str) else "none"
            raise SettingError(
                f"{self.algorithm}: {name}: expected {expected} with {where}, got {value!r}; leave "
                f"it out, or {instead}"
            )

    @property
    def num_actors(self) -> int:
        """Workers with a policy of their own, or one; each has equally many envs.

        One for each core if `num_workers` is None.
        Raises: SettingError for more than envs, and for envs that cannot be shared out evenly.
        """
        if self.backend == "serial" or self.policy_at == HEAD:
            return 1
        if self.num_workers is None:
            most = min(len(usable_cpus()), self.num_envs)
            return next(n for n in range(most, 0, -1) if self.num_envs % n == 0)
        if self.num_envs % self.num_workers:
            raise SettingError(
                f"{self.algorithm}: num_workers: expected a divisor of num_envs, "
                f"{self.num_envs}, as every actor has equally many, got {self.num_workers}"
            )
        return self.num_workers

    def inference_settings(self) -> InferenceSettings:
        """Those of an inference server. Raises: SettingError."""
        return InferenceSettings(
            batch_rows=self.server_batch,
            deadline_s=self.server_deadline_s,
            device=self.server_device,
            threads=self.torch_threads,
            timeout_s=self.server_timeout_s,
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
