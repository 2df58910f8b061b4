"""You will see an epidemic's parameters found again from nothing but its daily counts.

    python examples/17_calibrate.py

The counts are the mean of 64 runs with known parameters. The fit starts elsewhere and follows the
gradient through the random infections; brackets hold the truth in 95 of 100 such fits. The same
from the command line, for counts of your own:
hotloop calibrate covid --target cases.csv --population astoria --plot
"""

import csv
import tempfile
from pathlib import Path

from hotloop.cli.main import main as hotloop
from hotloop.models.epidemic import covid
from hotloop.sim import Executor, LoadPopulation

AGENTS, DAYS = 10_000, 14
R_BY_WEEK, MORTALITY = (7.0, 4.0), 0.3


def observe(path: Path) -> None:
    """Write the mean counts of 64 runs as a table of days."""
    settings = covid.CovidSettings(num_steps=DAYS, r_by_week=R_BY_WEEK, mortality=MORTALITY)
    executor = Executor(covid.model(settings), LoadPopulation(AGENTS), replicates=64, seed=1000)
    with executor.execute() as runner, path.open("w", newline="") as file:
        infected = runner.state["environment/daily_infected"].mean(0).tolist()
        deaths = runner.state["environment/daily_deaths"].mean(0).tolist()
        writer = csv.writer(file)
        writer.writerow(("day", "daily_infected", "daily_deaths"))
        writer.writerows(zip(range(DAYS), infected, deaths, strict=True))


def main() -> None:
    print(f"planted: R {R_BY_WEEK}, mortality {MORTALITY}\n")
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases.csv"
        observe(cases)
        common = ["--population", str(AGENTS), "--target", str(cases), "--observed-runs", "64"]
        hotloop(["calibrate", "covid", *common, "--iterations", "60"])


if __name__ == "__main__":
    main()
