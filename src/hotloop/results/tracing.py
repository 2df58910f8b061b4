"""A trace of a measurement, where the user has asked for one."""

from pathlib import Path
from typing import Any

import numpy as np

from hotloop.benchmark.perfetto import expect_perfetto, write_trace
from hotloop.benchmark.tracer import Tracer, traced
from hotloop.loop.conduct import Measurement
from hotloop.loop.control import SharedControl
from hotloop.loop.loop import Loop
from hotloop.results.ranks import expect_one_process


class Tracing:
    """Lets a measurement be traced into a file; with no path, lets it be.

    Raises: SettingError without the package perfetto, and for a target that starts several ranks.
    """

    def __init__(self, path: Path | None, target: Loop | str, control: SharedControl) -> None:
        if path is not None:
            expect_perfetto()
            expect_one_process(target, "--trace")
        self._path = path
        self._control = control
        self._tracer = Tracer(control)

    def of(self, measurement: Measurement[Any]) -> Measurement[Any]:
        """The same measurement, seen by the tracer."""
        if self._path is None:
            return measurement
        return traced(measurement, self._control, self._tracer)

    def write(self, meters: np.ndarray) -> None:
        """Write what was seen. meters: (K, columns) samples of the machine."""
        if self._path is not None:
            write_trace(self._tracer, meters, self._path)
