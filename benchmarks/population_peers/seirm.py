"""The numbers of the covid model, for those peers that can be given it. Needs numpy only.

Agents are susceptible 0, exposed 1, infected 2, recovered 3, dead 4. On day t agent i feels
lambda_i = R S[age_i] / I[age_i] * sum over edges j -> i of A[stage_j] g[t - infected_time_j - 1]
and is infected with probability 1 - exp(-lambda_i): exposed for 5 days after the next, infected
for 5 days, then dead with probability M, else recovered. g is a gamma distribution by days, with
mean 5.5 and deviation 2.4.
"""

from math import exp, lgamma, log

import numpy as np

RATE, MORTALITY = 4.75, 0.12
EXPOSED_DAYS, INFECTED_DAYS = 5, 5
NEVER = 500
INFECTIOUSNESS = (0.0, 0.33, 0.72, 0.0, 0.0)
SUSCEPTIBILITY = (0.35, 0.69, 1.03, 1.03, 1.03, 1.03)
INTERACTIONS = (2.0, 3.0, 3.0, 3.0, 3.0, 4.0)
DAYS = 40


def gamma_cdf(x: float, mean: float = 5.5, deviation: float = 2.4) -> float:
    """Regularised lower incomplete gamma function P(a, x / b), by its series."""
    scale = deviation**2 / mean
    shape, z = mean / scale, x / scale
    if z <= 0:
        return 0.0
    term = total = 1.0
    n = 0
    while term > 1e-16 * total:
        n += 1
        term *= z / (shape + n)
        total += term
    return exp(shape * log(z) - z - lgamma(shape + 1)) * total


def sent() -> np.ndarray:
    """(5, DAYS) what an agent sends by stage and by days since it was infected."""
    cdf = np.array([gamma_cdf(day) for day in range(-1, DAYS)])
    share = np.diff(cdf)  # g[0], g[1], ...
    table = np.zeros((5, DAYS))
    table[:, 1:] = np.outer(INFECTIOUSNESS, share[: DAYS - 1])
    return table


def received(age: np.ndarray) -> np.ndarray:
    """(N,) R S / I: what each agent makes of the sum that it receives."""
    return RATE * (np.array(SUSCEPTIBILITY) / np.array(INTERACTIONS))[age]


def first_times(stages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) infected_time and next_stage_time of a population at the start."""
    infected = np.select([stages == 1, stages == 2], [-1, -3], NEVER)
    after = np.select([stages == 1, stages == 2], [3, 5], NEVER)
    return infected, after
