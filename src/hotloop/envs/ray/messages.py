"""Messages of the driver to actors: what is kept of each until it is answered."""

from dataclasses import dataclass
from typing import NamedTuple

from hotloop.data.layout import Tree, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.ray.actors import ActorHandle


@dataclass(frozen=True, eq=False)
class PendingMessage:
    """One message under way to a worker, kept until it is answered: it may have to go again."""

    handle: ActorHandle
    method: str  # reset, step or restore
    rows: list[int]
    at: slice | list[int]  # the same, as an index
    message: bytes


class StepPart(NamedTuple):
    """The envs of one worker that are to step."""

    handle: ActorHandle
    positions: slice | list[int]  # of their actions among those given
    slabs: list[int]  # that step as a whole
    single: list[int]  # envs that step alone


def take_actions(actions: Tree, at: slice | list[int]) -> Tree:
    """The actions at some positions."""
    if type(actions) is not Given:
        return tree_map(lambda leaf: leaf[at], actions)
    return Given(actions[at] if isinstance(at, slice) else [actions[k] for k in at])
