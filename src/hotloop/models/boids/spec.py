"""What the boids model declares of itself, for commands and reports."""

from dataclasses import dataclass

from hotloop.models.boids.model import model
from hotloop.models.boids.settings import box_for
from hotloop.sim.model import Model
from hotloop.sim.spec import ModelSpec, Output


@dataclass(frozen=True)
class BoidsOptions:
    """Settings of boids as options of a command; the others keep their defaults."""

    birds: int = 10_000
    """How many there are."""
    neighbours: float = 20.0
    """How many others a bird sees on average at first; the box is as large as that needs."""
    periodic: bool = True
    """Whether a bird that leaves on one side comes in on the other; else it turns at the wall."""


def _model(options: BoidsOptions) -> Model:
    box = box_for(options.birds, options.neighbours, periodic=options.periodic)
    return model(options.birds, box)


MODEL = ModelSpec(
    name="boids",
    make=_model,
    settings=BoidsOptions,
    outputs=(Output("polarisation", "polarisation", kind="level", word="polarisation"),),
)
