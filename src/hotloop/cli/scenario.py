"""A model on a population, made ready to run: what simulate and calibrate share."""

import contextlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from hotloop.cli.places import check_place
from hotloop.errors import (
    CapacityError,
    ConfigError,
    DeviceError,
    NetworkError,
    PopulationError,
    SettingError,
    nearest,
)
from hotloop.loop.run import Run
from hotloop.report.curves import Curve
from hotloop.report.html import write_html
from hotloop.report.picture import write_picture

if TYPE_CHECKING:
    from hotloop.populations.data import PopulationData
    from hotloop.sim import Model, Runner

MODELS = ("covid",)
_STAGE = "agents/citizens/disease_stage"
_LAST_SEED = 2**62  # seeds are 63 bits wide, and an ensemble counts on from the first
_MOST_STEPS = 32_000  # days are counted in 16 bits


@dataclass(frozen=True)
class Scenario:
    """What is to be run: who, for how long, and on what.

    replicates: None for a single run without that axis.
    """

    model: str
    population: str
    steps: int
    replicates: int | None
    seed: int
    device: str = "auto"
    r: tuple[float, ...] | None = None
    mortality: float | None = None
    threads: int | None = None
    precision: Literal["double", "mixed"] = "double"
    active_set: bool = True
    both_ways: bool = False
    draw_network: bool = False

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise SettingError(f"no model {self.model!r}{nearest(self.model, MODELS)}")
        for option, value in (("--steps", self.steps), ("--replicates", self.replicates)):
            if value is not None and value < 1:
                raise SettingError(f"{option}: expected 1 or more, got {value}")
        if self.steps > _MOST_STEPS:
            raise SettingError(f"--steps: expected at most {_MOST_STEPS:,}, got {self.steps:,}")
        if not 0 <= self.seed <= _LAST_SEED:
            raise SettingError(f"--seed: expected 0 to {_LAST_SEED:,}, got {self.seed:,}")


def rates(text: str | None) -> tuple[float, ...] | None:
    """R by week from numbers with commas.

    Raises: SettingError.
    """
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(0 <= each < math.inf for each in found):
        raise SettingError(
            f"--r: expected numbers of 0 or more, one a week, as in 4.75,4.5,4; got {text!r}"
        )
    return found


def load_population(scenario: Scenario, errors: Console) -> "PopulationData":
    """The population, with a sign of life while it is drawn or read.

    Raises: SettingError for one that does not exist or cannot be.
    """
    from hotloop.populations import load

    shown = errors.status(f"population {scenario.population} …")
    with shown if errors.is_terminal else contextlib.nullcontext(), refused_before_start():
        # Not given, it is not settled either: a network that has each contact once is told.
        return load(
            scenario.population,
            both_ways=scenario.both_ways or None,
            draw_network=scenario.draw_network,
        )


def ready(scenario: Scenario, data: "PopulationData") -> "Runner":
    """A runner at its first state.

    Raises: SettingError for a device that is not there, a population that does not fit the model,
    too little memory.
    """
    from hotloop.sim import Executor
    from hotloop.sim.settings import find_device

    with refused_before_start():
        device = find_device(scenario.device)
        return Executor(
            covid_model(scenario),
            data,
            replicates=scenario.replicates,
            seed=scenario.seed,
            capture=device.type == "cuda",
            **engine_settings(scenario) | {"device": device},
        ).init()


def covid_model(scenario: Scenario) -> "Model":
    """The model with the parameters that were given; the others are its own.

    Raises: SettingError for a parameter that cannot be.
    """
    from hotloop.models import covid

    given = {"r_by_week": scenario.r, "mortality": scenario.mortality}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return covid.model(covid.CovidSettings(num_steps=scenario.steps, **known))


def engine_settings(scenario: Scenario) -> dict[str, Any]:
    """What the engine is told beside the model, the population and the seeds."""
    return {
        "device": scenario.device,
        "threads": scenario.threads,
        "precision": scenario.precision,
        "active_set": "auto" if scenario.active_set else False,
    }


def infected_at_start(runner: "Runner") -> int:
    """How many the first run starts with, exposed or infected."""
    stage = runner.state[_STAGE]
    stage = stage if stage.dim() == 1 else stage[0]
    return int(((stage == 1) | (stage == 2)).sum())


def check_plot(plot: str | None) -> None:
    """Refuse a picture that could not be written. An empty name stands for a page here.

    Raises: SettingError.
    """
    if plot:
        check_place("--plot", Path(plot), (".png", ".html"))


def write_plot(plot: str, run: Run, curves: list[Curve]) -> Path:
    """Draw the curves as the page or picture that was asked for; returns where."""
    place = Path(plot or re.sub(r"[^\w.-]+", "-", run.target) + ".html")
    if place.suffix == ".png":
        return write_picture(curves, run.target, place)
    return write_html([run], place)


def say_written(errors: Console, path: Path) -> None:
    """Name a file that was written beside the run."""
    line = f"written: {path.resolve()}"
    errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def refused_before_start() -> Iterator[None]:
    """What is found wrong before the first step is wrong usage, like any other setting."""
    try:
        yield
    except (PopulationError, DeviceError, CapacityError, ConfigError, NetworkError) as error:
        raise SettingError(str(error)) from error
    except MemoryError as error:
        raise SettingError(
            "out of memory before the first step; ask for fewer --replicates, a smaller "
            "--population, or fewer at once with --batch"
        ) from error
