"""The table of learners: the names of the command line, and where each of them lives.

Names only: a learner, and torch with it, is loaded when it is used.
"""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hotloop.errors import TargetError, nearest

if TYPE_CHECKING:
    from hotloop.learn.learner import Learner

ALGORITHMS: Mapping[str, str] = {
    "ppo": "hotloop.learn.ppo:PPO",
    "appo": "hotloop.learn.appo:APPO",
    "impala": "hotloop.learn.impala:IMPALA",
    "apex": "hotloop.learn.apex:Apex",
}
"""By the name of an algorithm, the module and class of its learner."""


def learner_type(algorithm: str) -> "type[Learner]":
    """Load the learner of an algorithm. Raises: TargetError for an unknown name."""
    if algorithm not in ALGORITHMS:
        raise TargetError(
            f"expected an algorithm, got {algorithm!r}{nearest(algorithm, ALGORITHMS)}"
        )
    module, _, name = ALGORITHMS[algorithm].partition(":")
    found: type[Learner] = getattr(importlib.import_module(module), name)
    return found


def split_target(target: str) -> tuple[str, str]:
    """Split `ppo:CartPole-v1` into the algorithm and the env's id, which may be "module:id".

    Raises: TargetError for what is no such target, or names no algorithm.
    """
    algorithm, colon, env_id = target.partition(":")
    if algorithm not in ALGORITHMS or not env_id:
        hint = nearest(algorithm, ALGORITHMS) if algorithm not in ALGORITHMS else ""
        raise TargetError(
            f"{target!r}: expected ALGORITHM:ENV, such as ppo:CartPole-v1, got "
            f"{f'the algorithm {algorithm!r}' if colon and env_id else 'no such pair'}{hint}"
        )
    return algorithm, env_id
