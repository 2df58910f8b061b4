"""What this machine can measure, and what that means for a verdict."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.benchmark.meters import GpuGauge
from hotloop.loop.clock import SPIN_NS, Clock, RealClock, resolution_ns, shortest_wait_ns
from hotloop.loop.figures import Interval, percentile_interval, resampled_rows
from hotloop.loop.host import cores, quota_cores, usable_cores

NOISE_SECONDS = 5.0
RESAMPLES = 400
# The kernel of work that the noise is measured with: about a millisecond of Python and memory.
_WORK_VALUES = 40_000


@dataclass(frozen=True)
class Noise:
    """How much two measurements of equal work differ on this machine.

    same: the share by which two interleaved runs of one piece of work differ, with its interval.
    spread: the middle half of single measurements, relative to the median.
    smallest_gain: the smallest gain that 30 s with 15 arms would distinguish from none.
    """

    same: Interval
    spread: float
    smallest_gain: float
    samples: int


@dataclass(frozen=True)
class Finding:
    """One property of this machine: its value, and what that means for a verdict."""

    name: str
    value: str
    means: str
    good: bool


def examine(seconds: float = NOISE_SECONDS, clock: Clock | None = None) -> list[Finding]:
    """Examine this machine; takes about `seconds`."""
    clock = clock or RealClock()
    return [
        _cores(),
        _resolution(clock),
        _waits(clock),
        _noise(measure_noise(seconds, clock)),
        *_gpu(),
        _ptrace(),
        _pressure(),
    ]


def measure_noise(seconds: float, clock: Clock) -> Noise:
    """Run an A/A test: one piece of work under two names, in random order, for `seconds`."""
    rng = np.random.default_rng(0)
    values = np.arange(_WORK_VALUES, dtype=np.float64)
    times: tuple[list[int], list[int]] = ([], [])
    end = clock.now_ns() + round(seconds * 1e9)
    while clock.now_ns() < end or len(times[0]) < 2:
        for name in rng.permutation(2):
            start = clock.now_ns()
            _work(values)
            times[name].append(clock.now_ns() - start)
    a, b = (np.array(column, float) for column in times)
    return noise_of(a, b, seconds)


def noise_of(a: np.ndarray, b: np.ndarray, seconds: float) -> Noise:
    """Compare paired durations of equal work, (n,) each, measured in `seconds` altogether."""
    rows = resampled_rows(len(a), RESAMPLES, np.random.default_rng(0))
    draws = np.median(a[rows], axis=1) / np.median(b[rows], axis=1) - 1
    same = percentile_interval(float(np.median(a) / np.median(b) - 1), draws)
    lower, middle, upper = np.quantile(np.concatenate([a, b]), [0.25, 0.5, 0.75])
    # An experiment of 30 s gives each of 15 arms 2 s, where this had seconds / 2.
    scale = math.sqrt((seconds / 2) / 2.0)
    return Noise(same, float((upper - lower) / middle), 2 * same.half_width * scale, len(a))


def _work(values: np.ndarray) -> float:
    total = 0.0
    for k in range(5_000):
        total += k
    for _ in range(10):
        total += float((values * 1.0001).sum())
    return total


def _cores() -> Finding:
    quota = quota_cores()
    limited = "no quota" if quota is None else f"a quota of {quota:g}"
    few = usable_cores() < 2
    return Finding(
        "cores",
        f"{cores()} with {limited}",
        "one core: nothing can overlap, and hotloop's own thread takes from the loop"
        if few
        else f"ceilings are worked out for {usable_cores():g} cores",
        not few,
    )


def _resolution(clock: Clock) -> Finding:
    step = resolution_ns(clock)
    return Finding(
        "clock",
        f"steps of {step} ns",
        "stages of a microsecond can be timed" if step < 500 else "time stages of 100 µs or more",
        step < 500,
    )


def _waits(clock: Clock) -> Finding:
    shortest = shortest_wait_ns(clock)
    return Finding(
        "waits",
        f"kept within 20% from {shortest / 1e3:g} µs on",
        "stages shorter than this are not padded or made to wait",
        shortest <= 2 * SPIN_NS,
    )


def _noise(noise: Noise) -> Finding:
    quiet = noise.smallest_gain < 0.03
    return Finding(
        "noise",
        f"equal work differs by {100 * noise.same.value:+.2f}% "
        f"[{100 * noise.same.low:+.2f}, {100 * noise.same.high:+.2f}]; the middle half of single "
        f"measurements spreads over {100 * noise.spread:.1f}%",
        f"30 s tell a gain of about {100 * noise.smallest_gain:.1f}% from none"
        + ("" if quiet else "; give a larger --budget, or quieten the machine"),
        quiet,
    )


def _gpu() -> list[Finding]:
    gauge = GpuGauge()
    try:
        if gauge.problem is not None:
            return [Finding("GPU", "none", gauge.problem, True)]
        sample = gauge.sample()
        activity = gauge.activity_problem
        return [
            Finding(
                "GPU",
                f"{gauge.name}, {sample.memory_bytes / 2**30:.1f} GiB in use",
                "duty cycle and memory can be read",
                True,
            ),
            Finding(
                "GPU counters",
                "SM and tensor activity" if activity is None else "none",
                "how busy the card is inside can be told"
                if activity is None
                else f"only whether it is awake: {activity}",
                activity is None,
            ),
        ]
    finally:
        gauge.close()


def _ptrace() -> Finding:
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    capable = _has_ptrace_capability()
    allowed = capable or scope == 0
    return Finding(
        "ptrace",
        f"scope {scope}{', with the capability' if capable else ''}",
        "profilers can attach to running processes"
        if allowed
        else "a profiler must start the process it looks at, or run as root",
        allowed,
    )


def _has_ptrace_capability() -> bool:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & (1 << 19))
    except (OSError, ValueError):
        pass
    return False


def _pressure() -> Finding:
    readable = Path("/proc/pressure/cpu").exists()
    return Finding(
        "pressure",
        "readable" if readable else "not readable",
        "waiting for a core is recorded with every block"
        if readable
        else "that other programs took the cores shows only in context switches",
        readable,
    )
