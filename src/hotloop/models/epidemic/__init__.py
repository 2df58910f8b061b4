"""Spreads from agent to agent: compartment models from three lines, fast and differentiable.

A model of your own takes the two substeps, the compiled program and the gradient:

    Model("flu", substeps=(Transmission(spread, rate), Progression(spread, mortality)),
          program=fused, gradient=differentiator, ...)

`fused` steps it in compiled code with the same bits, `differentiator` gives its daily counts a
gradient, and `calibrate` fits it to an observed curve.

Needs torch, which is imported with the first name that is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.models.epidemic.calibration import (
        Calibration,
        CalibrationSettings,
        Observed,
        calibrate,
    )
    from hotloop.models.epidemic.gradient.differentiator import differentiator, expected_loss
    from hotloop.models.epidemic.spread import Spread
    from hotloop.models.epidemic.substeps import Progression, Transmission, fused
    from hotloop.models.epidemic.weekly_rates import WeeklyRates

_MODULES = {
    "Calibration": "calibration",
    "CalibrationSettings": "calibration",
    "Observed": "calibration",
    "Progression": "substeps",
    "Spread": "spread",
    "Transmission": "substeps",
    "WeeklyRates": "weekly_rates",
    "calibrate": "calibration",
    "differentiator": "gradient.differentiator",
    "expected_loss": "gradient.differentiator",
    "fused": "substeps",
}

__all__ = [
    "Calibration",
    "CalibrationSettings",
    "Observed",
    "Progression",
    "Spread",
    "Transmission",
    "WeeklyRates",
    "calibrate",
    "differentiator",
    "expected_loss",
    "fused",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
