"""The covid model: what there is at the start, and its two substeps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hotloop.errors import SettingError
from hotloop.models.covid import disease
from hotloop.models.covid.quirks import QuirkyProgression, QuirkyTransmission
from hotloop.models.epidemic.gradient.differentiator import differentiator
from hotloop.models.epidemic.substeps import Progression, Transmission, fused
from hotloop.sim.draws import INITIAL
from hotloop.sim.model import Column, FromColumn, FromEdges, Model, Series
from hotloop.sim.substep import Substep

POPULATION = "citizens"
# Astoria's file has 45 exposed of 37,518; a population without stages starts with as many.
EXPOSED_SHARE = 45 / 37_518


@dataclass(frozen=True)
class CovidSettings:
    """What can be set of the covid model."""

    num_steps: int = 21
    """Days of an episode."""
    r_by_week: tuple[float, ...] = disease.R_BY_WEEK
    """Reproduction number of each week; the last one goes on (parameter R2)."""
    mortality: float = disease.MORTALITY
    """Share of those leaving the infected stage who die (parameter M)."""
    willingness: float = 0.0
    """How much of its contacts an agent gives up where isolation is asked of it, 0 to 1."""
    exposed_share: float = EXPOSED_SHARE
    """Share exposed at the start, where the population does not say who."""
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
    """The SEIRM model on the population's contact network.

    State: agents/citizens/{age, disease_stage, infected_time, next_stage_time, willingness};
    environment/{daily_infected, daily_deaths}, counts by day; environment/contact_factor (6,), what
    multiplies the susceptibility of each age (0 closes its contacts), and environment/isolating,
    0 to 1, how much of their willingness agents live up to: both may be set between steps.
    """
    settings = settings or CovidSettings()
    spread = disease.spread()
    names: dict[str, Any] = {
        "population": POPULATION,
        "stage": "disease_stage",
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
    substeps: tuple[Substep, Substep]
    if settings.reference_quirks:
        interactions = torch.tensor(disease.INTERACTIONS, dtype=torch.float64)
        sending |= {"interactions": interactions, "both_ways": settings.quirk_both_ways}
        substeps = (
            QuirkyTransmission(spread, rate, **sending),
            QuirkyProgression(spread, mortality, **moving),
        )
    else:
        substeps = Transmission(spread, rate, **sending), Progression(spread, mortality, **moving)

    def stages(data: Any, state: Any) -> Any:
        if data.stages is not None:
            return data.stages
        drawn = state.uniform(INITIAL, POPULATION)
        return torch.where(drawn < settings.exposed_share, disease.EXPOSED, 0)

    def by_stage(table: dict[int, int]) -> Any:
        values = np.full(len(disease.STAGES), disease.UNSET, np.int16)
        for stage, value in table.items():
            values[stage] = value
        chosen = torch.from_numpy(values)

        def initial(_data: Any, state: Any) -> torch.Tensor:
            stage = state[f"agents/{POPULATION}/disease_stage"]
            return chosen.to(stage.device)[stage.long()]

        return initial

    highest = len(disease.STAGES) - 1
    stage_dtype = torch.float32 if settings.reference_quirks else torch.uint8
    return Model(
        name="covid",
        substeps=substeps,
        populations={
            POPULATION: {
                "age": Column(FromColumn("age"), torch.uint8, 0, disease.NUM_AGES - 1),
                "disease_stage": Column(stages, stage_dtype, 0, highest),
                "infected_time": Column(by_stage(disease.INITIAL_INFECTED_TIME), torch.int16),
                "next_stage_time": Column(by_stage(disease.INITIAL_NEXT_STAGE_TIME), torch.int16),
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
