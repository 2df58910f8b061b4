"""Facts about this machine that matter for a measurement."""

import importlib.metadata
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from hotloop.loop.values import torch_if_loaded

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Environment variables in which numerical libraries, as they are loaded, read their threads."""

_CGROUP = Path("/sys/fs/cgroup")
_PACKAGES = ("hotloop", "numpy", "torch", "gymnasium", "numba")


def usable_cpus() -> frozenset[int]:
    """Return the numbers of the CPUs that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def cores() -> int:
    """Return how many cores this process may run on."""
    return len(usable_cpus())


def quota_cores() -> float | None:
    """Return the control group's processor quota in cores, or None where there is none."""
    limit: float | None = None
    for folder in _own_groups():
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            here = int(quota) / int(period)
            limit = here if limit is None else min(limit, here)
    if limit is None:
        try:  # version 1
            quota_us = int((_CGROUP / "cpu/cpu.cfs_quota_us").read_text())
            period_us = int((_CGROUP / "cpu/cpu.cfs_period_us").read_text())
        except (OSError, ValueError):
            return None
        limit = quota_us / period_us if quota_us > 0 else None
    return limit


def usable_cores() -> float:
    """Return how many cores this process can keep busy: its affinity, capped by the quota."""
    quota = quota_cores()
    return float(cores()) if quota is None else min(float(cores()), quota)


def whole_cores() -> int:
    """Return how many cores this process and its children can keep busy at once: at least one."""
    return max(1, int(usable_cores()))


def threads_beside_driver(workers: int) -> int:
    """Return how many threads numerical libraries may use in each of so many worker processes.

    That is what the user has set for this process; else the workers share the cores less one, the
    driver's: another thread, which spins while it waits, would take what the learner needs.
    """
    for name in THREAD_VARIABLES:
        if (threads := os.environ.get(name, "")).isdecimal() and int(threads) > 0:
            return int(threads)
    return max(1, (whole_cores() - 1) // workers)


def host_facts() -> dict[str, Any]:
    """Return the facts about this machine that every run holds."""
    torch = torch_if_loaded()
    cuda = bool(torch is not None and torch.cuda.is_available())
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor_name(),
        "cores": cores(),
        "quota_cores": quota_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": _versions(),
        "gpu": torch.cuda.get_device_name() if torch is not None and cuda else None,
        "torch_threads": torch.get_num_threads() if torch is not None else None,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def describe(facts: dict[str, Any]) -> str:
    """Describe a machine in one line, from its facts."""
    quota = facts.get("quota_cores")
    limited = "" if quota is None else f", quota {quota:g} cores"
    gpu = facts.get("gpu") or "no GPU"
    cores = "1 core" if facts["cores"] == 1 else f"{facts['cores']} cores"
    return (
        f"{facts['processor']}, {cores}{limited}, "
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, {gpu}; Python {facts['python']}, "
        f"{facts['date'][:10]}"
    )


def _own_groups() -> list[Path]:
    """The folders of this process's control group and its parents (version 2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    name = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = _CGROUP / name.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(_CGROUP))]


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
