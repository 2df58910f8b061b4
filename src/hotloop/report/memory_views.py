"""Charts of a run's memory over time, from the samples of its meters."""

import numpy as np

from hotloop.benchmark.meters import COLUMNS
from hotloop.loop.run import Run
from hotloop.report.charts.memory import MOST_POINTS, MemoryCurve, memory_chart
from hotloop.report.charts.svg import NARROW, WIDE
from hotloop.report.section import ChartView

# The columns that are drawn, whose memory each is, and what it counts.
_SOURCES = (
    ("memory_bytes", "the process tree", "Resident memory of the loop and all its processes."),
    ("gpu_memory_bytes", "the card", "Memory in use on the card, by all that runs there."),
)
_FEWEST = 3  # samples; fewer make no curve


def memory_views(key: str, run: Run) -> list[ChartView]:
    """A chart of each kind of memory that was sampled. key: the id of the section."""
    samples = run.arrays.get("meters", np.zeros((0, len(COLUMNS))))
    views = []
    for column, of, lead in _SOURCES:
        held = samples[:, COLUMNS.index(column)]
        known = np.isfinite(held)
        if known.sum() < _FEWEST:
            continue
        since_s = (samples[:, COLUMNS.index("time_ns")] - samples[0, 0])[known] * 1e-9
        curve = MemoryCurve(since_s.tolist(), held[known].tolist())
        joined = len(curve.seconds) > MOST_POINTS
        views.append(
            ChartView(
                f"Memory of {of}",
                lead,
                [
                    memory_chart(curve, width=width, name=f"{key}-{column}-{width}", of=of)
                    for width in (WIDE, NARROW)
                ],
                notes=["Each point is the most of its stretch."] if joined else [],
            )
        )
    return views
