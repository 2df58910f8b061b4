"""The covid model as an env: each week, close the schools or not, and ask for some isolation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import SettingError
from hotloop.models.epidemic.covid import disease
from hotloop.models.epidemic.covid.model import POPULATION, CovidSettings, model
from hotloop.populations import PopulationData
from hotloop.sim.env import SimulationEnv, SimulationVectorEnv, Task
from hotloop.sim.executor import LoadPopulation
from hotloop.sim.state import State

HALF_SEEN = 10.0  # infections or deaths per 1000 that an observation shows as 1/2
DEFAULT_AGENTS, DEFAULT_DAYS, DEFAULT_WILLINGNESS = 5_000, 84, 0.6
DEFAULT_R = 1.6  # with contacts both ways: half are infected without measures, isolation stops it


@dataclass(frozen=True)
class ClosureSettings:
    """The decisions and their costs, counted per 1000 inhabitants."""

    days_per_action: int = 7
    """Days until the next decision."""
    isolation_levels: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Shares of their willingness on which agents may be asked to act."""
    school_contacts_left: float = 0.2
    """Share of the contacts of those up to 19 that closed schools leave."""
    infection_weight: float = 1.0
    """Cost of one infection per 1000."""
    death_weight: float = 5.0
    """Cost of one death per 1000."""
    closing_weight: float = 1.0
    """Cost of a day with closed schools."""
    isolation_weight: float = 3.0
    """Cost of a day at isolation level 1; less in proportion."""
    reward_scale: float = 0.01
    """Multiplies the sum of all costs."""

    def __post_init__(self) -> None:
        if self.days_per_action < 1:
            raise SettingError(f"days_per_action: expected 1 or more, got {self.days_per_action}")
        shares = {"school_contacts_left": self.school_contacts_left}
        shares |= {f"isolation_levels[{i}]": x for i, x in enumerate(self.isolation_levels)}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise SettingError(f"{name}: expected 0 to 1, got {share}")
        if not self.isolation_levels:
            raise SettingError("isolation_levels: expected at least one, got none")


class ClosureTask(Task):
    """Keep infections and deaths low without keeping everything closed.

    Action: (schools closed 0 or 1, isolation level). Observation (9,) float32, all 0 to 1: shares
    of the population in each compartment; x / (x + 10) of the x per 1000 infected and dead since
    the last decision, so that 1 is seen as well as 100; the school decision and the isolation that
    hold.
    Reward: minus what the days since the last decision cost, see `ClosureSettings`.
    """

    def __init__(self, settings: ClosureSettings | None = None) -> None:
        self.settings = settings or ClosureSettings()
        self.steps_per_action = self.settings.days_per_action
        self.action_space = spaces.MultiDiscrete([2, len(self.settings.isolation_levels)])
        self.observation_space = spaces.Box(0, 1, (len(disease.COMPARTMENTS) + 4,), np.float32)

    def controls(self, actions: NDArray[Any]) -> Mapping[str, Tensor]:
        """Reduce the contacts of those at school age, and ask all to isolate."""
        contact = np.ones((len(actions), disease.NUM_AGES))
        contact[:, disease.SCHOOL_AGE] = np.where(
            actions[:, 0], self.settings.school_contacts_left, 1.0
        )
        return {
            "environment/contact_factor": torch.from_numpy(contact),
            "environment/isolating": torch.from_numpy(self._isolation(actions)),
        }

    def observation(self, state: State) -> Tensor:
        """See the class."""
        compartment: Tensor = state[f"agents/{POPULATION}/disease_stage"]
        last = slice(max(0, state.step - self.steps_per_action), state.step)
        shares = _compartment_counts(compartment) / compartment.shape[-1]
        per_1000 = torch.stack(_totals(state, last), -1) * (1000 / compartment.shape[-1])
        closed = state["environment/contact_factor"][:, disease.SCHOOL_AGE] < 1
        now = torch.stack([closed.to(shares.dtype), state["environment/isolating"]], -1)
        return torch.cat([shares, per_1000 / (per_1000 + HALF_SEEN), now], -1).to(torch.float32)

    def reward(self, state: State, actions: NDArray[Any], first_step: int) -> Tensor:
        """Return minus the cost of the days since the last decision, float64."""
        s, days = self.settings, state.step - first_step
        infected, dead = _totals(state, slice(first_step, state.step))
        per_1000 = 1000 / state.size(POPULATION)
        measures = s.closing_weight * actions[:, 0] + s.isolation_weight * self._isolation(actions)
        cost = (s.infection_weight * infected + s.death_weight * dead) * per_1000
        return -s.reward_scale * (cost + days * torch.from_numpy(measures).to(cost.device))

    def _isolation(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        levels = np.array(self.settings.isolation_levels, np.float64)
        return levels[actions[:, 1].astype(np.int64)]


def covid_vector_env(
    population: Any = DEFAULT_AGENTS,
    num_envs: int = 1,
    *,
    task: ClosureSettings | None = None,
    covid: CovidSettings | None = None,
    **settings: Any,
) -> SimulationVectorEnv:
    """Make `num_envs` epidemics to be contained, stepped in one batch.

    population: as for `LoadPopulation`: a name, a number of agents, a folder, data. Data are taken
    as they are; anything else is read with contacts both ways, so that there is an epidemic to
    contain. Give a `LoadPopulation` for another reading.
    covid: the disease; by default 12 weeks with R 1.6 in a population that gives up 0.6 of its
    contacts where isolation is asked for. settings: of `SimulationVectorEnv`, such as
    `autoreset_mode`, `device`.

    Raises: as `SimulationVectorEnv`.
    """
    return SimulationVectorEnv(
        model(covid or _disease()),
        ClosureTask(task),
        num_envs,
        population=_contacts(population),
        **settings,
    )


def covid_env(
    population: Any = DEFAULT_AGENTS,
    *,
    task: ClosureSettings | None = None,
    covid: CovidSettings | None = None,
    **settings: Any,
) -> SimulationEnv:
    """Make one epidemic to be contained; arguments as of `covid_vector_env`.

    Raises: as `SimulationEnv`.
    """
    return SimulationEnv(
        model(covid or _disease()), ClosureTask(task), population=_contacts(population), **settings
    )


def _contacts(population: Any) -> Any:
    if isinstance(population, LoadPopulation | PopulationData):
        return population
    return LoadPopulation(population, both_ways=True)


def _disease() -> CovidSettings:
    return CovidSettings(
        num_steps=DEFAULT_DAYS, r_by_week=(DEFAULT_R,), willingness=DEFAULT_WILLINGNESS
    )


def _compartment_counts(compartment: Tensor) -> Tensor:
    """Count the agents in each compartment, (R, compartments), float64, of (R, N)."""
    number = len(disease.COMPARTMENTS)
    if compartment.device.type == "cpu":  # a twentieth of what comparing takes here
        counts = torch.stack([torch.bincount(row, minlength=number) for row in compartment])
    else:
        counts = torch.stack([(compartment == one).sum(-1) for one in range(number)], -1)
    return counts.to(torch.float64)


def _totals(state: State, steps: slice) -> list[Tensor]:
    """Sum infections and deaths of some days, (R,) each, float64."""
    # Whole numbers, whose sum is exact in any order.
    return [
        state[f"environment/{name}"][:, steps].to(torch.float64).sum(-1)
        for name in ("daily_infected", "daily_deaths")
    ]
