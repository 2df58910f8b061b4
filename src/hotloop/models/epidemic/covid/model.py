"""The covid model: its first values and its two substeps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotloop.errors import PopulationError, SettingError
from hotloop.models.epidemic.covid import disease
from hotloop.models.epidemic.covid.quirks import QuirkyProgression, QuirkyTransmission
from hotloop.models.epidemic.gradient.differentiator import differentiator
from hotloop.models.epidemic.substeps import Progression, Transmission, fused
from hotloop.populations.ages import age_codes
from hotloop.populations.data import PopulationData, whole_numbers
from hotloop.sim.draws import INITIAL
from hotloop.sim.model import Column, FromColumn, FromEdges, Model, Series
from hotloop.sim.substep import Substep

POPULATION = "citizens"
# Columns of a population that may say in which compartment each agent starts.
START_COLUMNS = ("stage", "stages", "disease_stage", "disease_stages")
# Astoria's file has 45 exposed of 37,518; a population without such a column starts with as many.
EXPOSED_SHARE = 45 / 37_518


@dataclass(frozen=True)
class CovidSettings:
    """Settings of the covid model."""

    num_steps: int = 21
    """Days of an episode."""
    r_by_week: tuple[float, ...] = disease.R_BY_WEEK
    """Reproduction number of each week; the last one stays (parameter R2)."""
    mortality: float = disease.MORTALITY
    """Share of those leaving the infected compartment who die (parameter M)."""
    willingness: float = 0.0
    """Share of its contacts that an agent gives up where it is asked to isolate, 0 to 1."""
    exposed_share: float = EXPOSED_SHARE
    """Share exposed at the start, where no column of the population says who."""
    reference_quirks: bool = False
    """Whether the reference system's faults are reproduced, for comparison; see quirks.py."""
    quirk_both_ways: bool = True
    """With the faults: whether edges infect both ways, as in one version of it."""

    def __post_init__(self) -> None:
        if not self.r_by_week or not all(0 <= r < float("inf") for r in self.r_by_week):
            raise SettingError(
                f"r_by_week: expected numbers of 0 or more, one a week; got {self.r_by_week}"
            )
        for name in ("mortality", "willingness", "exposed_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name}: expected 0 to 1, got {getattr(self, name)}")


def model(settings: CovidSettings | None = None) -> Model:
    """Make the SEIRM model on the population's contact network.

    State: agents/citizens/{age, disease_stage, infected_time, next_stage_time, willingness};
    environment/{daily_infected, daily_deaths}, counts by day; environment/contact_factor (6,), what
    multiplies the susceptibility of each age (0 closes its contacts), and environment/isolating,
    0 to 1, the share of their willingness that agents act on: both may be set between steps.
    """
    settings = settings or CovidSettings()
    highest = len(disease.COMPARTMENTS) - 1
    compartment_dtype = torch.float32 if settings.reference_quirks else torch.uint8
    infected_time = _by_compartment(disease.INITIAL_INFECTED_TIME)
    next_time = _by_compartment(disease.INITIAL_NEXT_STAGE_TIME)

    def compartments(data: Any, state: Any) -> Any:
        given = _given_compartments(data)
        if given is not None:
            return given
        drawn = state.uniform(INITIAL, POPULATION)
        return torch.where(drawn < settings.exposed_share, disease.EXPOSED, 0)

    return Model(
        name="covid",
        substeps=_substeps(settings),
        populations={
            POPULATION: {
                "age": Column(FromColumn("age", age_codes), torch.uint8, 0, disease.NUM_AGES - 1),
                "disease_stage": Column(compartments, compartment_dtype, 0, highest),
                "infected_time": Column(infected_time, torch.int16),
                "next_stage_time": Column(next_time, torch.int16),
                "willingness": Column(settings.willingness, torch.float32, 0, 1),
            }
        },
        environment={
            "daily_infected": Series(),
            "daily_deaths": Series(),
            "contact_factor": np.ones(disease.NUM_AGES),
            "isolating": 0.0,
        },
        networks={"contact": FromEdges()},
        num_steps_per_episode=settings.num_steps,
        program=None if settings.reference_quirks else fused,
        gradient=None if settings.reference_quirks else differentiator,
    )


def _substeps(settings: CovidSettings) -> tuple[Substep, Substep]:
    spread = disease.spread()
    names: dict[str, Any] = {
        "population": POPULATION,
        "compartment": "disease_stage",
        "next_time": "next_stage_time",
    }
    sending: dict[str, Any] = {
        **names,
        "name": "new_transmission",
        "rate_name": "R2",
        "group": "age",
        "contact": "contact_factor",
        "isolating": "isolating",
        "willing": "willingness",
    }
    moving: dict[str, Any] = {**names, "name": "seirm_progression", "mortality_name": "M"}
    rate = torch.tensor(settings.r_by_week).unsqueeze(-1)
    mortality = torch.tensor([settings.mortality])
    if settings.reference_quirks:
        interactions = torch.tensor(disease.INTERACTIONS, dtype=torch.float64)
        sending |= {"interactions": interactions, "both_ways": settings.quirk_both_ways}
        return (
            QuirkyTransmission(spread, rate, **sending),
            QuirkyProgression(spread, mortality, **moving),
        )
    return Transmission(spread, rate, **sending), Progression(spread, mortality, **moving)


def _by_compartment(table: dict[int, int]) -> Callable[[Any, Any], torch.Tensor]:
    """Make an initialiser that looks up each agent's compartment in a table."""
    values = np.full(len(disease.COMPARTMENTS), disease.UNSET, np.int16)
    for compartment, value in table.items():
        values[compartment] = value
    chosen = torch.from_numpy(values)

    def initial(_data: Any, state: Any) -> torch.Tensor:
        compartment = state[f"agents/{POPULATION}/disease_stage"]
        return chosen.to(compartment.device)[compartment.long()]

    return initial


def _given_compartments(data: PopulationData) -> np.ndarray | None:
    """Find the compartment in which each agent starts, (N,) uint8; None where no column says it.

    Raises: PopulationError, with the column and the first bad row.
    """
    names = [name for name in START_COLUMNS if name in data.columns]
    if not names:
        return None
    where = f"population {data.name!r}: column"
    if len(names) > 1:
        raise PopulationError(
            f"{where}s {' and '.join(map(repr, names))}: expected one column of the compartments "
            f"at the start, got {len(names)}; remove all but one"
        )
    highest = len(disease.COMPARTMENTS) - 1
    return whole_numbers(data.columns[names[0]], highest, f"{where} {names[0]!r}")
