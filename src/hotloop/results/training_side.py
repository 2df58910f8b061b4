"""Trainings of one target in one process, one after the other, each when it is ordered.

`hotloop.optimize.training_bench` orders them. To load torch, and what an optimiser's first step
loads, takes longer than a short training; here it is done once, and no training's time contains it.
"""

import gc
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hotloop.learn.algorithms import learner_type, split_target
from hotloop.loop.target import settings_of
from hotloop.optimize.libraries import levers_for
from hotloop.repeat.channel import Channel
from hotloop.results.targets import value_of

# The first step of any optimiser of torch loads it, which takes seconds.
_LOADED_BY_STEPS = "torch._dynamo"


def run_trainings(channel: Channel, order: Mapping[str, Any]) -> dict[str, Any]:
    """Train as ordered until told to end; returns the last message.

    An order holds settings as text, a seed, and for how many seconds of training it may last.
    """
    importlib.import_module(_LOADED_BY_STEPS)
    # As for `module:function`: "module:id" finds modules of the folder that the user is in.
    sys.path.insert(0, str(Path.cwd()))
    learner_type(split_target(order["target"])[0])
    channel.send({"unit": "env steps", "foreign_modules": []})
    while (asked := channel.receive()) and not asked.get("end"):
        channel.send(_trained(order["target"], order["levers"], asked))
        gc.collect()  # what one has left takes no time of the next one
    return {"ended": None}


def _trained(target: str, levers: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Train once: the seconds to the target, None if it was not reached; or why there are none."""
    from hotloop.learn.training import Trainer

    algorithm, env_id = split_target(target)
    given = {name: value_of(text) for name, text in asked["settings"].items()}
    given |= {"env_id": env_id, "seed": asked["seed"]}
    try:
        settings = settings_of(learner_type(algorithm).settings_type, given)
        with (
            levers_for(levers) as set_levers,
            Trainer(settings, time_limit_s=asked["limit_s"]) as trainer,
        ):
            set_levers(trainer.learner.loop())
            trainer.run()
            training = trainer.training()
    except MemoryError as error:
        return {"problem": f"it needs more memory than there is ({error})"}
    except Exception as error:
        return {"problem": f"a training raised {type(error).__name__}: {error}"}
    if training.target_return != training.target_return:  # not a number
        return {"problem": "the env names no target: give target_return=NUMBER"}
    return {"problem": None, "seconds": training.seconds_to_solve}
