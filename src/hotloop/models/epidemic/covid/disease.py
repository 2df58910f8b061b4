"""The tables of the disease: how much each compartment and age infects, and for how long."""

import math

import numpy as np

from hotloop.models.epidemic.spread import Spread
from hotloop.populations.ages import AGE_CODES, AGE_GROUPS

COMPARTMENTS = ("susceptible", "exposed", "infected", "recovered", "dead")
SUSCEPTIBLE, EXPOSED, INFECTED, RECOVERED, DEAD = range(5)
NUM_AGES = len(AGE_GROUPS)
SCHOOL_AGE = AGE_CODES["u19"]  # the code of those up to 19

INFECTIOUSNESS = (0.0, 0.33, 0.72, 0.0, 0.0)  # by compartment
# By age code, see `populations.ages`; the tables of some populations know three codes more.
SUSCEPTIBILITY = (0.35, 0.69, 1.03, 1.03, 1.03, 1.03, 1.27, 1.52, 1.52)
INTERACTIONS = (2.0, 3.0, 3.0, 3.0, 3.0, 4.0)  # mean, by age code
R_BY_WEEK = (4.75, 4.75, 4.75)
MORTALITY = 0.12
GENERATION_MEAN_DAYS, GENERATION_SD_DAYS = 5.5, 2.4
EXPOSED_DAYS, INFECTED_DAYS = 5, 5
# An agent sends for 11 days; the initially infected for a few more, if given so.
DAYS_KEPT = 24
# Columns at the start: the day of infection, and the day of the next compartment.
INITIAL_INFECTED_TIME = {EXPOSED: -1, INFECTED: -3}
INITIAL_NEXT_STAGE_TIME = {EXPOSED: 3, INFECTED: 5}
UNSET = 500


def generation_weights(days: int) -> np.ndarray:
    """Compute g[k] = F(k) - F(k - 1) of the generation time's gamma distribution, float64 (days,).

    F has scale b = sd**2 / mean and shape mean / b. g[0] is 0.
    """
    scale = GENERATION_SD_DAYS**2 / GENERATION_MEAN_DAYS
    shape = GENERATION_MEAN_DAYS / scale
    distribution = [lower_gamma(shape, k / scale) for k in range(days)]
    return np.diff(distribution, prepend=0.0)


def lower_gamma(shape: float, x: float) -> float:
    """Compute the regularised lower incomplete gamma function P(a, x), by its series.

    P(a, x) = x^a e^-x / Gamma(a) * sum over n of x^n / (a (a+1) ... (a+n)); DLMF 8.7.1 and 8.2.4.
    Right to rounding for the few tens that x takes here.
    """
    if x <= 0:
        return 0.0
    term = total = 1.0 / shape
    n = 0
    while term > 1e-17 * total:
        n += 1
        term *= x / (shape + n)
        total += term
    return min(1.0, total * math.exp(shape * math.log(x) - x - math.lgamma(shape)))


def spread() -> Spread:
    """Make the spread: an agent sends A[compartment] * g[days since its infection - 1]."""
    weights = np.zeros((len(COMPARTMENTS), DAYS_KEPT))
    weights[:, 1:] = np.outer(INFECTIOUSNESS, generation_weights(DAYS_KEPT - 1))
    susceptibility = np.array(SUSCEPTIBILITY[:NUM_AGES]) / np.array(INTERACTIONS)
    return Spread(weights, (EXPOSED_DAYS, INFECTED_DAYS), susceptibility, 7, COMPARTMENTS)
