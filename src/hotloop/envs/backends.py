"""The backends: one table, read by `make_vec`, `auto`, the sweep and the command line.

An entry says how its class is loaded, which variants of it a sweep measures, and what `auto`
expects of it. Importing this module loads neither Ray nor torch, nor any backend.
"""

import importlib.util
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from hotloop.envs.vector import VectorEnv
from hotloop.envs.workload import Candidate, Variant, Workload
from hotloop.errors import SettingError, WorkerError, nearest

AUTO = "auto"  # no backend: one of them is chosen
MakeBackend = Callable[..., VectorEnv]
# A step of all envs in worker processes costs this beside the envs' own steps: signals both ways.
# Measured on two cores; races correct what they can.
SIGNAL_S = 50e-6
MAX_WAITING_WORKERS = 256
EVERY_NUMBER_TO = 4  # workers; beyond it each number measured is twice the one before
OPEN_WAITING_WORKERS = 64  # in a sweep, where all variants are open at once
BUSY = 0.5  # of a step: below it an env mostly waits, and workers beyond the cores help
RAY_WORKERS = (1, 2)
# Of a core, for each actor: those of all variants are alive at once, and only one set of them
# works at a time.
RAY_CPUS = 0.1


@dataclass(frozen=True)
class Backend:
    """One way to step several envs as one vector env.

    load: imports the backend and returns the function that makes its vector envs, of functions that
    make an env each; the keyword arguments of that function are the backend's settings.
    variants: what a sweep measures side by side.
    candidates: what `auto` considers for a workload; None for a backend that it never chooses.
    workers: what its workers are called; None where envs are stepped in this process.
    extra: the extra of this package, and the package of the same name, without which it cannot run.
    starts_threads: whether it starts threads in this process, which has to come after forks.
    sweep_settings: what a sweep passes to it. session: what has to run meanwhile.
    """

    load: Callable[[], MakeBackend]
    variants: Callable[[Workload], Sequence[Variant]]
    candidates: Callable[[Workload], Sequence[Candidate]] | None = None
    workers: str | None = None
    extra: str | None = None
    starts_threads: bool = False
    sweep_settings: Mapping[str, Any] = field(default_factory=dict)
    session: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def is_installed(self) -> bool:
        """Whether the package is there that it needs."""
        return self.extra is None or importlib.util.find_spec(self.extra) is not None


def find_backend(name: str) -> Backend:
    """The entry of this name.

    Raises: SettingError, with the nearest name, if there is none.
    """
    backend = BACKENDS.get(name)
    if backend is None:
        hint = nearest(str(name), [*BACKENDS, AUTO])
        raise SettingError(f"backend: expected the name of a backend, got {name!r}{hint}")
    return backend


def load_backend(name: str) -> MakeBackend:
    """The function that makes vector envs of this backend; its package is imported now.

    Raises: SettingError for an unknown name; WorkerError where a package is missing.
    """
    backend = find_backend(name)
    if not backend.is_installed:
        extra = str(backend.extra)
        raise WorkerError(f"{extra.title()} is not installed: pip install 'hotloop[{extra}]'")
    return backend.load()


def settings_of(names: Iterable[str]) -> set[str]:
    """The settings that one of these backends has, or several together."""
    known: set[str] = set()
    for name in names:
        known.update(list(inspect.signature(load_backend(name)).parameters)[1:])
    return known


def candidates_for(work: Workload) -> list[Candidate]:
    """What each backend would need for a step of all envs, best first."""
    found = [
        candidate
        for backend in BACKENDS.values()
        if backend.candidates is not None and backend.is_installed
        for candidate in backend.candidates(work)
    ]
    return sorted(found, key=lambda candidate: candidate.expected_s)


def measurable() -> tuple[str, ...]:
    """What a sweep can measure: every backend, and `auto`; those that start threads come last."""
    late = [name for name, backend in BACKENDS.items() if backend.starts_threads]
    return (*(name for name in BACKENDS if name not in late), AUTO, *late)


def names_in(text: str) -> tuple[str, ...]:
    """The names that "all" or a list with commas stands for, in the order of `measurable`.

    Raises: SettingError, with the nearest name, for an unknown one.
    """
    known = measurable()
    if text.strip() == "all":
        return known
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise SettingError(
                "backends: expected 'all' or a list of backends, with commas, got "
                f"{name!r}{nearest(name, [*known, 'all'])}"
            )
    return tuple(name for name in known if name in names)


def variants_of(names: Iterable[str], work: Workload) -> list[Variant]:
    """The variants that a sweep of these backends measures.

    A backend whose package is missing has one, which says so when it is made.
    """
    variants: list[Variant] = []
    for name in names:
        if name == AUTO or not find_backend(name).is_installed:
            variants.append(Variant(name))
        else:
            variants += BACKENDS[name].variants(work)
    return variants


# --- serial ------------------------------------------------------------------------------------


def _load_serial() -> MakeBackend:
    from hotloop.envs.serial.composed import make_serial

    return make_serial


def _serial_candidates(work: Workload) -> list[Candidate]:
    """One process; left out where workers are asked for."""
    if work.num_workers is not None:
        return []
    seconds = work.num_makers * (work.wait_s + work.work_s / work.cores_of(1))
    return [Candidate(Variant("serial"), seconds + work.copy_s)]


# --- process -----------------------------------------------------------------------------------


def _load_process() -> MakeBackend:
    from hotloop.envs.process.engine import ProcessVectorEnv

    return ProcessVectorEnv


def _process_variants(work: Workload) -> list[Variant]:
    envs = work.num_makers
    numbers = worker_numbers(envs, work.cores, work.probe.busy)
    variants = [Variant("process", number) for number in numbers]
    if envs % 2 == 0:
        halves = sorted({min(work.cores, envs // 2), min(numbers[-1], envs // 2)})
        variants += [Variant("process", number, splits=2) for number in halves]
    return variants


def worker_numbers(num_envs: int, cores: int, busy: float = 1.0) -> list[int]:
    """Numbers of worker processes, up to twice the cores; further where envs mostly wait."""
    most = 2 * cores if busy > BUSY else max(2 * cores, OPEN_WAITING_WORKERS)
    most = min(most, num_envs)
    numbers = {min(cores, most), most, *range(1, min(EVERY_NUMBER_TO, most) + 1)}
    number = EVERY_NUMBER_TO
    while (number := 2 * number) <= most:
        numbers.add(number)
    return sorted(numbers)


def _process_candidates(work: Workload) -> list[Candidate]:
    return [
        Candidate(Variant("process", number), _process_s(work, number))
        for number in _considered_numbers(work)
    ]


def _considered_numbers(work: Workload) -> list[int]:
    """Few numbers of workers: of the cores, more beside other programs, and as many as envs."""
    if work.num_workers is not None:
        return [work.num_workers]
    most, cores = work.num_makers // work.splits, work.cores
    beside = (4 * cores,) if work.other_load else ()
    wanted = {cores, 2 * cores, *beside, MAX_WAITING_WORKERS, most}
    numbers = sorted({min(most, number) for number in wanted})
    return [number for number in numbers if number <= max(cores, MAX_WAITING_WORKERS)]


def _process_s(work: Workload, workers: int) -> float:
    """What a step of all envs needs: work shares the cores, waiting does not."""
    each = -(-work.num_makers // workers)
    # A batch waits for its slowest worker, and the sum of many steps varies less than one.
    late_s = (work.probe.late_step_s - work.probe.step_s) / max(1.0, math.sqrt(each))
    envs_s = each * work.wait_s + work.num_makers * work.work_s / work.cores_of(workers)
    signals_s = SIGNAL_S * (1 + workers / (4 * work.cores))
    return envs_s + max(0.0, late_s) + signals_s + 2 * work.copy_s


# --- native and ray ----------------------------------------------------------------------------


def _load_native() -> MakeBackend:
    from hotloop.envs.native import make_native

    return make_native


def _load_ray() -> MakeBackend:
    from hotloop.envs.ray.engine import RayVectorEnv

    return RayVectorEnv


def _ray_variants(work: Workload) -> list[Variant]:
    return [Variant("ray", number) for number in RAY_WORKERS if number <= work.num_makers]


def _ray_session() -> AbstractContextManager[object]:
    from hotloop.envs.ray.session import own_session

    return own_session()


BACKENDS: dict[str, Backend] = {
    "serial": Backend(
        load=_load_serial,
        variants=lambda _work: [Variant("serial")],
        candidates=_serial_candidates,
    ),
    "native": Backend(load=_load_native, variants=lambda _work: [Variant("native")]),
    "process": Backend(
        load=_load_process,
        variants=_process_variants,
        candidates=_process_candidates,
        workers="worker processes",
    ),
    "ray": Backend(
        load=_load_ray,
        variants=_ray_variants,
        workers="Ray actors",
        extra="ray",
        starts_threads=True,
        sweep_settings={"num_cpus": RAY_CPUS},
        session=_ray_session,
    ),
}
