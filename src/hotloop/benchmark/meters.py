"""Processor, memory and GPU use of the process, sampled twice a second while the loop runs.

Every system call of a thread releases the interpreter lock and asks for it again, and a loop that
computes in Python releases it only after 5 ms: a sample makes as few calls as it can. What a
machine does not report is kept as unknown with the reason, never as zero.
"""

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

from hotloop.loop.gauges import Descendants

PERIOD_S = 0.5

# Names of the columns, in order.
COLUMNS = (
    "time_ns",
    "cpu_s",
    "memory_bytes",
    "processes",
    "gpu_duty",
    "gpu_memory_bytes",
    "gpu_sm",
    "gpu_tensor",
)
# NVML's numbers for what the GPU performance monitoring of a card calls SM and any-tensor activity.
_GPM_SM_UTIL = 2
_GPM_ANY_TENSOR_UTIL = 5
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass
class GpuSample:
    """One sample of the GPU; NaN where the card does not report it."""

    duty: float = float("nan")  # share of the last period in which any kernel ran
    memory_bytes: float = float("nan")
    sm: float = float("nan")  # share of multiprocessor time with a warp resident
    tensor: float = float("nan")  # share of time in which tensor cores were active


class GpuGauge:
    """The first visible card, read by NVML. `problem` says why there is none."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.activity_problem: str | None = None
        self.name: str | None = None
        self._nvml: Any = None
        self._samples: list[Any] = []
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._card = pynvml.nvmlDeviceGetHandleByIndex(_first_visible_card())
            name = pynvml.nvmlDeviceGetName(self._card)
            self.name = name.decode() if isinstance(name, bytes) else str(name)
        except Exception as error:  # NVML raises a class per code; each means "not here"
            self.problem = f"no NVIDIA GPU that NVML can read ({error})"
            self.activity_problem = self.problem
            return
        try:
            support = self._nvml.nvmlGpmQueryDeviceSupport(self._card)
            if not support.isSupportedDevice:
                raise RuntimeError("needs a Hopper or newer card")
            self._samples = [self._nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self._nvml.nvmlGpmSampleGet(self._card, self._samples[0])
        except Exception as error:
            self.activity_problem = f"{self.name} gives no SM or tensor activity ({error})"
            self._samples = []

    def sample(self) -> GpuSample:
        """Read the card."""
        found = GpuSample()
        if self.problem is not None:
            return found
        with contextlib.suppress(self._nvml.NVMLError):
            found.duty = self._nvml.nvmlDeviceGetUtilizationRates(self._card).gpu / 100
        with contextlib.suppress(self._nvml.NVMLError):
            found.memory_bytes = float(self._nvml.nvmlDeviceGetMemoryInfo(self._card).used)
        if self._samples:
            with contextlib.suppress(self._nvml.NVMLError):
                found.sm, found.tensor = self._activity()
        return found

    def close(self) -> None:
        """Free the resources of NVML."""
        if self._nvml is not None:
            for sample in self._samples:
                self._nvml.nvmlGpmSampleFree(sample)
            self._samples = []
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._nvml = None
            self.problem = self.problem or "closed"

    def _activity(self) -> tuple[float, float]:
        nvml = self._nvml
        earlier, later = self._samples
        nvml.nvmlGpmSampleGet(self._card, later)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 2
        request.sample1, request.sample2 = earlier, later
        request.metrics[0].metricId = _GPM_SM_UTIL
        request.metrics[1].metricId = _GPM_ANY_TENSOR_UTIL
        nvml.nvmlGpmMetricsGet(request)
        self._samples = [later, earlier]
        return request.metrics[0].value / 100, request.metrics[1].value / 100


class ProcessTree:
    """Processor time and memory of this process and its descendants."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._descendants = Descendants()
        self._stat = -1
        with contextlib.suppress(OSError):  # where there is no /proc, psutil asks the system
            self._stat = os.open("/proc/self/stat", os.O_RDONLY)

    def sample(self) -> tuple[float, float, int]:
        """Return processor seconds, bytes in memory, and the number of processes."""
        cpu, memory = self._own()
        processes = 1
        for process in self._descendants.list():
            with contextlib.suppress(psutil.Error):  # it has ended
                spent, held = _usage(process)
                cpu, memory, processes = cpu + spent, memory + held, processes + 1
        return cpu, memory, processes

    def close(self) -> None:
        """Close the open files."""
        self._descendants.close()
        if self._stat >= 0:
            os.close(self._stat)
        self._stat = -1

    def _own(self) -> tuple[float, float]:
        if self._stat < 0:
            return _usage(self._process)
        # proc(5): after the name in brackets come state, ppid, ...; utime, stime, cutime and cstime
        # are fields 14 to 17 of the line, rss is field 24.
        fields = os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE


def _usage(process: psutil.Process) -> tuple[float, float]:
    """Return processor seconds and memory of a process. Raises: psutil.Error if it has ended."""
    with process.oneshot():
        times = process.cpu_times()
        # What ended children had used is in the children_ fields of who waited for them.
        spent = times.user + times.system + times.children_user + times.children_system
        return spent, process.memory_info().rss


class Meters:
    """A thread that samples this process and its descendants while a `with` block runs."""

    def __init__(self) -> None:
        self.gpu = GpuGauge()
        self._tree = ProcessTree()
        self._rows: list[tuple[float, ...]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hotloop-meters", daemon=True)

    def __enter__(self) -> "Meters":
        self.read()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.gpu.close()
        self._tree.close()

    def read(self) -> None:
        """Take one sample now."""
        cpu, memory, processes = self._tree.sample()
        gpu = self.gpu.sample()
        self._rows.append(
            (
                time.perf_counter_ns(),
                cpu,
                memory,
                processes,
                gpu.duty,
                gpu.memory_bytes,
                gpu.sm,
                gpu.tensor,
            )
        )

    def samples(self) -> np.ndarray:
        """Return all samples so far: (K, len(COLUMNS)), float64."""
        return np.array(self._rows, dtype=np.float64).reshape(-1, len(COLUMNS))

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self.read()


def _first_visible_card() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return int(visible) if visible.isdigit() else 0
