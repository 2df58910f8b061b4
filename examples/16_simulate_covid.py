"""You will see how far the same epidemic can differ by chance, and what closing schools would do.

    python examples/16_simulate_covid.py

Two ensembles of 100 runs on a drawn population of 20,000: as it is, and with the contacts of the
young (up to 19) closed from day 7 on. Run r of both has the same seed: what differs between them
is the measure. The same from the command line, without the measure:
hotloop simulate covid --population 20000 --steps 42 --replicates 100 --plot
"""

import numpy as np

from hotloop.models.epidemic import covid
from hotloop.models.epidemic.covid.disease import SCHOOL_AGE
from hotloop.sim import Executor, LoadPopulation

DAYS, RUNS, CLOSED_FROM = 42, 100, 7
BARS = " ▁▂▃▄▅▆▇█"


def infections(population: LoadPopulation, *, close: bool) -> np.ndarray:
    """Daily infections of every run: (RUNS, DAYS)."""
    settings = covid.CovidSettings(num_steps=DAYS, r_by_week=(8.0, 7.0, 6.0))
    with Executor(covid.model(settings), population, replicates=RUNS).init() as runner:
        runner.step(CLOSED_FROM)
        if close:
            runner.state["environment/contact_factor"][..., SCHOOL_AGE] = 0.0
        runner.step(DAYS - CLOSED_FROM)
        return runner.state["environment/daily_infected"].cpu().numpy().copy()


def main() -> None:
    population = LoadPopulation(20_000)
    both = {
        name: infections(population, close=close)
        for name, close in (("as it is", False), ("young closed", True))
    }
    top = max(curve.mean(0).max() for curve in both.values())
    for name, curve in both.items():
        low, middle, high = np.percentile(curve.sum(1), [2.5, 50, 97.5])
        bars = "".join(BARS[round(8 * day / top)] for day in curve.mean(0))
        print(f"{name:>12}  {bars}  {middle:,.0f} infected, 95% of runs {low:,.0f} to {high:,.0f}")
    spared = both["as it is"].sum(1) - both["young closed"].sum(1)
    low, high = np.percentile(spared, [2.5, 97.5])
    print(f"      spared  {np.median(spared):,.0f} [{low:,.0f}, {high:,.0f}], run by run")


if __name__ == "__main__":
    main()
