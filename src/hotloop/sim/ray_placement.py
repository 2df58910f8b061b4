"""Where the workers of an ensemble run on a Ray cluster; needs no Ray."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotloop.errors import SettingError, expect_positive


@dataclass(frozen=True)
class RayPlacement:
    """How many workers run on a Ray cluster, and the resources that each requests."""

    num_workers: int | None = None
    """Actors; None takes as many as the cluster has room for, at most one a batch."""
    num_cpus: float = 1.0
    """Cores that each requests, and threads that it uses."""
    num_gpus: float = 0.0
    """Cards that each requests; with any, batches run on CUDA."""
    ray_options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the actors, such as `resources`; "SPREAD" is the strategy if not given."""
    restarts: int = 3
    """How often workers may be restarted, in all; the batch of a lost worker runs again."""
    address: str | None = None
    """Of a cluster, as `ray.init` takes it; used where Ray was not initialised before."""
    start_timeout_s: float = 120.0
    """How long to wait for the first worker to be placed."""

    def __post_init__(self) -> None:
        for name in ("num_workers", "num_cpus", "start_timeout_s"):
            expect_positive(name, getattr(self, name))
        if self.restarts < 0 or self.num_gpus < 0:
            raise SettingError(
                f"restarts, num_gpus: expected 0 or more, got {self.restarts}, {self.num_gpus}"
            )
