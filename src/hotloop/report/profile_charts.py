"""The charts of each profile, on the page."""

from collections.abc import Callable, Mapping
from typing import Any

from hotloop.report.charts.flame import flame_views
from hotloop.report.charts.roofline import roofline_views
from hotloop.report.section import ChartView

# The charts of a profile of each aspect, given a key of the page, what was found, and the colours
# of the stages. What has none is left out.
CHARTS: Mapping[str, Callable[[str, Any, Mapping[str, int]], list[ChartView]]] = {
    "time": lambda key, found, colours: flame_views(key, found.flame, colours),
    "model": roofline_views,
}
