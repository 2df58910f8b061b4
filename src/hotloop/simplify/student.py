"""Student's t distribution, for the few dozen degrees of freedom that an experiment has."""

import functools
import math

MAX_DEGREES = 400  # beyond it the normal distribution differs in the third digit only


def student_tail(t: float, degrees: int) -> float:
    """P(T > t) for t ≥ 0 and a whole number of degrees of freedom, at least 1.

    A finite series in θ = atan(t/√ν): 1 − 2P is, for odd ν, 2/π·(θ + sin θ·(cos θ +
    2/3·cos³θ + …)), for even ν, sin θ·(1 + 1/2·cos²θ + 3/8·cos⁴θ + …).
    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4.
    """
    degrees = min(degrees, MAX_DEGREES)
    theta = math.atan(t / math.sqrt(degrees))
    sine, square = math.sin(theta), math.cos(theta) ** 2
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= square * k / (k + 1)
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return min(0.5, max(0.0, 0.5 - 0.5 * inside))


@functools.lru_cache(maxsize=1024)
def student_quantile(probability: float, degrees: int) -> float:
    """The t with P(T ≤ t) = probability, for a probability of at least one half."""
    low, high = 0.0, 1.0
    while student_tail(high, degrees) > 1 - probability:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if student_tail(middle, degrees) > 1 - probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2
