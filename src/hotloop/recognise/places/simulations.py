"""Simulations that are no envs: a step of a Mesa model, a run of a Starsim one (Covasim's too)."""

from types import ModuleType
from typing import Any

from hotloop.recognise.place_stage import Replay
from hotloop.recognise.places import ENV_STEP
from hotloop.recognise.places.checkpoints import nothing
from hotloop.recognise.recognition import ENV_STEPS, Recognition


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make the steps of simulations a stage."""
    if library.__name__ == "mesa.model":
        step = recognition.stage(ENV_STEP, effect="stateful")
        make = recognition.method(
            step, replay=Replay(instead=nothing), units=(ENV_STEPS, lambda _model, _output: 1.0)
        )
        recognition.patches.family(library.Model, "step", make)
        return
    run = recognition.stage(ENV_STEP, effect="effectful")
    # All steps of a simulation are one call, and others read what it leaves.
    make = recognition.method(run, units=(ENV_STEPS, _points))
    recognition.patches.function(library.Loop, "run", make)


def _points(loop: Any, _output: Any) -> float:
    return float(loop.sim.t.npts)
