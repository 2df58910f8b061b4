"""What a backend is chosen for and from: the probe of one env, the workload, and its variants."""

from dataclasses import dataclass

# Bytes that a process copies into shared memory, or out of it, in a second.
BYTES_PER_S = 4e9


@dataclass(frozen=True)
class Probe:
    """What one env is like. `steps` is 1, or the envs that its vector env steps at once."""

    step_s: float  # median
    late_step_s: float  # 95th percentile
    busy: float  # the share of a step in which a processor works
    obs_bytes: int
    make_s: float
    steps: int
    is_vector: bool = False  # the env is a vector env


@dataclass(frozen=True)
class Workload:
    """So many envs of one kind on so many cores.

    num_makers: functions, each of which makes an env, or a vector env. splits: groups of envs that
    step in turn. num_workers: the only number to consider; None for any. other_load: processes of
    other programs that compute without end.
    """

    probe: Probe
    num_makers: int
    cores: int
    splits: int = 1
    num_workers: int | None = None
    other_load: float = 0.0

    @property
    def work_s(self) -> float:
        """The part of one env's step in which a processor works."""
        return self.probe.step_s * self.probe.busy

    @property
    def wait_s(self) -> float:
        """The part of one env's step that waits, for a device or another program."""
        return self.probe.step_s * (1 - self.probe.busy)

    @property
    def copy_s(self) -> float:
        """What it takes to copy the observations of a step of all envs once."""
        return self.num_makers * self.probe.steps * self.probe.obs_bytes / BYTES_PER_S

    def cores_of(self, processes: int) -> float:
        """Cores that so many processes have: the scheduler gives every process an equal share."""
        return min(processes, self.cores * processes / (processes + self.other_load))


@dataclass(frozen=True)
class Variant:
    """A backend with its workers; None: it has none, or decides itself how many."""

    backend: str
    num_workers: int | None = None
    splits: int = 1

    def __str__(self) -> str:
        workers = "" if self.num_workers is None else f" x {self.num_workers}"
        return f"{self.backend}{workers}{f', {self.splits} splits' if self.splits > 1 else ''}"


@dataclass(frozen=True)
class Candidate:
    """A variant that `auto` considers, and what a step of all envs would need, in seconds."""

    variant: Variant
    expected_s: float
    measured_s: float | None = None
