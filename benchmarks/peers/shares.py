"""How many cores a training keeps busy: its own process, and those that it has started."""

import time

import psutil


class Shares:
    """Counts from where it is made."""

    def __init__(self) -> None:
        self._begin, (self._own, self._started) = time.perf_counter(), _cpu_seconds()

    def read(self) -> dict[str, float]:
        """Return the cores that were busy on average since then; processes that ended are left out.

        own_cores: by the process that calls; started_cores: by all that it has started.
        """
        wall_s, (own, started) = time.perf_counter() - self._begin, _cpu_seconds()
        return {
            "own_cores": (own - self._own) / wall_s,
            "started_cores": (started - self._started) / wall_s,
        }


def _cpu_seconds() -> tuple[float, float]:
    """Processor time of this process, and of all that it has started and that still run."""
    this = psutil.Process()
    times = [this.cpu_times(), *(child.cpu_times() for child in this.children(recursive=True))]
    own, *started = [each.user + each.system for each in times]
    return own, sum(started)
