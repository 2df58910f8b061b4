"""The ways in which one env's copies can be stepped: which are worth measuring, and each made."""

import difflib
import importlib.util
import os
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv as AnyVectorEnv

from hotloop.envs.make import env_spec, make_vec
from hotloop.errors import SettingError, TargetError, WorkerError

BACKENDS = ("serial", "native", "process", "auto", "ray")
EVERY_NUMBER_TO = 4  # workers; beyond it each number measured is twice the one before
RAY_WORKERS = (1, 2)
# Of a core, for each actor: those of all variants are alive at once, and only one set of them
# works at a time.
RAY_CPUS = 0.1
WAITING_WORKERS = 64  # at most, where envs mostly wait: all variants are open at once
BUSY = 0.5  # of a step: below it an env mostly waits, and workers beyond the cores help


@dataclass(frozen=True)
class Variant:
    """A backend with its workers; None: in this process, or as many as the backend decides."""

    backend: str
    num_workers: int | None = None
    splits: int = 1

    def __str__(self) -> str:
        workers = "" if self.num_workers is None else f" x {self.num_workers}"
        return f"{self.backend}{workers}{f', {self.splits} splits' if self.splits > 1 else ''}"


def as_backends(text: str) -> tuple[str, ...]:
    """The backends that "all" or a list with commas names, in the order of `BACKENDS`.

    Raises: SettingError, with the nearest name, for what is none.
    """
    if text.strip() == "all":
        return BACKENDS
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in BACKENDS:
            near = difflib.get_close_matches(name, [*BACKENDS, "all"], n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SettingError(
                f"backends: expected 'all' or a list of {', '.join(BACKENDS)}, with commas, got "
                f"{name!r}{hint}"
            )
    return tuple(backend for backend in BACKENDS if backend in names)


def plan(backends: tuple[str, ...], num_envs: int, cores: int, busy: float = 1.0) -> list[Variant]:
    """The variants to measure. busy: the share of a step that is work of a processor."""
    variants: list[Variant] = []
    numbers = worker_numbers(num_envs, cores, busy)
    for backend in backends:
        if backend == "process":
            variants += [Variant(backend, number) for number in numbers]
            if num_envs % 2 == 0:
                halves = sorted({min(cores, num_envs // 2), min(numbers[-1], num_envs // 2)})
                variants += [Variant(backend, number, splits=2) for number in halves]
        elif backend == "ray" and importlib.util.find_spec("ray") is not None:
            variants += [Variant(backend, number) for number in RAY_WORKERS if number <= num_envs]
        else:
            variants.append(Variant(backend))
    return variants


def worker_numbers(num_envs: int, cores: int, busy: float = 1.0) -> list[int]:
    """Numbers of worker processes, up to twice the cores; further where envs mostly wait."""
    most = 2 * cores if busy > BUSY else max(2 * cores, WAITING_WORKERS)
    most = min(most, num_envs)
    numbers = {min(cores, most), most, *range(1, min(EVERY_NUMBER_TO, most) + 1)}
    number = EVERY_NUMBER_TO
    while (number := 2 * number) <= most:
        numbers.add(number)
    return sorted(numbers)


def open_variant(env_id: str, num_envs: int, variant: Variant) -> AnyVectorEnv[Any, Any, Any]:
    """The vector env of a variant.

    Raises: TargetError where the env has none of its own; WorkerError where Ray is not installed;
    what making the envs raises.
    """
    if variant.backend == "native":
        if env_spec(env_id).vector_entry_point is None:
            raise TargetError("the env has no vector env of its own (vector_entry_point)")
        return gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point")
    if variant.backend == "ray":
        if importlib.util.find_spec("ray") is None:
            raise WorkerError("Ray is not installed: pip install 'hotloop[ray]'")
        # Else Ray would join any cluster that it finds on this machine, with whoever works it.
        _start_quietly(os.environ.get("RAY_ADDRESS", "local"))
        return make_vec(
            env_id,
            num_envs,
            backend="ray",
            num_workers=variant.num_workers,
            num_cpus=RAY_CPUS,
        )
    return make_vec(
        env_id,
        num_envs,
        backend=variant.backend,
        num_workers=variant.num_workers,
        splits=variant.splits,
    )


def _start_quietly(address: str) -> None:
    """Start Ray where it does not run: its own lines would stand in front of the answer."""
    import ray

    from hotloop.envs.ray_crew import start_ray

    if not ray.is_initialized():
        start_ray(address, quiet=True)
