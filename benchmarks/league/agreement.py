"""When a prediction and a truth agree, and what a prediction is where a fix leaves some work."""

import math

Gain = tuple[float, float, float]  # value, low, high


def width_of(gain: Gain) -> float:
    """Of the whole interval."""
    return gain[2] - gain[1]


def allowed(predicted: Gain, true: Gain) -> float:
    """How far apart they may be: √(h₁² + h₂²) of both half-widths."""
    return math.hypot(width_of(predicted) / 2, width_of(true) / 2)


def holds(predicted: Gain, true: Gain) -> bool:
    """Whether they are no farther apart than both errors allow."""
    return abs(predicted[0] - true[0]) <= allowed(predicted, true)


def read_at(predicted: Gain, left: float, by_clock: float, half_width: float) -> Gain:
    """The gain for what a fix really left, which is known to this half-width.

    predicted: the gain if `left` of the stage's work were left. In a loop in sequence the gain
    grows evenly with what is taken from a stage.
    """
    value, low, high = (gain * (1 - by_clock) / (1 - left) for gain in predicted)
    half = math.hypot((high - low) / 2, predicted[0] / (1 - left) * half_width)
    return value, value - half, value + half
