"""A calibration of Covasim by its own tools; an analyzer visits every person on every day."""

import argparse
import tempfile
from pathlib import Path

import covasim as cv


class ByAge(cv.Analyzer):
    """Counts the infectious by decade of age, person by person."""

    def apply(self, sim):
        counts = [0] * 12
        people = sim.people
        for infectious, age in zip(people.infectious, people.age, strict=True):
            counts[int(age) // 10] += bool(infectious)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("steps", type=int, nargs="?", default=2_000, help="simulations")
    options.add_argument("--fix", action="store_true", help="count nobody")
    chosen = options.parse_args()
    cv.options(verbose=0)
    parameters = {"pop_size": 2_000, "pop_infected": 20, "n_days": 40, "rand_seed": 1}
    truth = cv.Sim(parameters, beta=0.016)
    truth.run()
    data = truth.to_df()[["date", "cum_infections"]].iloc[::5]
    analyzers = [] if chosen.fix else [ByAge()]
    sim = cv.Sim(parameters, analyzers=analyzers, datafile=data)
    with tempfile.TemporaryDirectory() as folder:
        calibration = cv.Calibration(
            sim,
            calib_pars={"beta": [0.010, 0.005, 0.030]},
            n_workers=1,
            total_trials=chosen.steps,
            db_name=str(Path(folder) / "calibration.db"),
            verbose=False,
        )
        calibration.calibrate(verbose=False)
    print("beta", calibration.best_pars["beta"])


if __name__ == "__main__":
    main()
