"""The short names of what comes with hotloop and can be a target of the command line.

Names only: a module is loaded when its target is used, and `hotloop --help` loads none.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class BuiltIn:
    """A short name for what comes with hotloop.

    declared: "package.module:NAME". example, about: for the usage text.
    """

    declared: str
    example: str
    about: str
    is_model: bool = False


DEFAULT_MODEL = "covid"
BUILT_IN: Mapping[str, BuiltIn] = {
    "ppo": BuiltIn("hotloop.learn.ppo:PPO_LOOPS", "ppo:CartPole-v1", "PPO on any Gymnasium env"),
    "appo": BuiltIn(
        "hotloop.learn.appo:APPO_LOOPS", "appo:CartPole-v1", "PPO with actors that act meanwhile"
    ),
    "impala": BuiltIn(
        "hotloop.learn.impala:IMPALA_LOOPS", "impala:CartPole-v1", "IMPALA, with V-trace"
    ),
    "apex": BuiltIn(
        "hotloop.learn.apex:APEX_LOOPS", "apex:CartPole-v1", "Ape-X DQN, with a prioritised replay"
    ),
    "covid": BuiltIn(
        "hotloop.models.epidemic.covid:MODEL",
        "covid:astoria",
        "a model of hotloop's own, on any population",
        is_model=True,
    ),
    "boids": BuiltIn(
        "hotloop.models.boids:MODEL", "boids", "a model with agents of its own", is_model=True
    ),
}
