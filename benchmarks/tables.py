"""How the benchmarks write their result pages: the machine first, then tables."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.loop.figures import Interval, percentile_interval, smooth_median
from hotloop.loop.host import describe, host_facts


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio_text(ratio: tuple[float, float, float]) -> str:
    """A ratio with its interval; alone where a single measurement gives none."""
    value, low, high = ratio
    return f"{value:.2f} [{low:.2f}, {high:.2f}]" if low <= high else f"{value:.2f}"


def write_page(
    path: Path | None,
    title: str,
    parts: Sequence[str],
    made_by: str,
    *,
    show: bool = True,
    machine: str = "",
) -> None:
    """Print a page, unless `show` is False, and write it where asked.

    machine: where it was measured, and when; otherwise this machine, today.
    """
    made = f"Made by `{made_by}`, whose first lines say how to run it."
    machine = machine or describe(host_facts())
    page = "\n\n".join([f"# {title}", f"{machine}.", *parts, made]) + "\n"
    if show:
        print(page)
    if path is not None:
        path.write_text(page)


def machines(lines: Iterable[Mapping[str, Any]]) -> str:
    """The machines of raw results, each once: what their lines have as `machine`."""
    return "; ".join(dict.fromkeys(str(line["machine"]) for line in lines))


def median_interval(values: np.ndarray) -> Interval:
    """The median of turns, with its 95% interval from turns drawn again."""
    count = len(values)
    drawn = np.random.default_rng(0).integers(0, count, (2_000, count))
    return percentile_interval(float(smooth_median(values)), smooth_median(values[drawn]))
