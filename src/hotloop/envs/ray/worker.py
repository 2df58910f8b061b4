"""The body of an actor of a vector env on Ray: it holds slabs, and gives one answer a message.

Messages and answers are pickled here and not by Ray, which takes about a fifth off what a small
step costs. The error of an env is part of an answer, so that it keeps its type.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import ray
from gymnasium.vector import AutoresetMode

from hotloop.data.layout import Layout, Tree, leaves, tree_map
from hotloop.envs.actions import Given
from hotloop.envs.facts import Facts
from hotloop.envs.infos import AnyInfo, AnyInfos
from hotloop.envs.pickling import pickle_message, portable_error
from hotloop.envs.placement import limit_threads
from hotloop.envs.slab import Slab, make_slabs
from hotloop.envs.table import Table

# Ray sends results up to 100 KB with the answer itself; larger ones it shares without a copy,
# which it can for arrays only.
_INLINE_BYTES = 100_000


@dataclass(frozen=True)
class Assignment:
    """The envs that one actor makes; as that of a worker process, without cores and driver."""

    fns: tuple[tuple[Callable[[], Any], ...], ...]
    first: tuple[int, ...]
    autoreset_mode: AutoresetMode | None
    threads: int


class Failure(NamedTuple):
    """An error, and the rows of the worker that it is about."""

    rows: list[int]
    error: bytes
    text: str

    @classmethod
    def of(cls, rows: Sequence[int], error: BaseException) -> "Failure":
        """The failure in a form that can be sent to the driver."""
        text = f"{type(error).__qualname__}: {error}"
        return cls(list(rows), cloudpickle.dumps(portable_error(error)), text)


class Outcome(NamedTuple):
    """The results of a reset or a step, one row of each array for each of the rows asked for."""

    obs: list[Any]  # the leaves of the observations
    reward: Any
    terminated: Any
    truncated: Any
    infos: AnyInfos  # the worker's rows
    failures: list[Failure]


class Answer(NamedTuple):
    """The result of any other message, or the error of a whole one."""

    value: Any
    failure: Failure | None


class RayWorker:
    """The body of an actor. Rows are the worker's own, counted from 0 over its slabs."""

    def __init__(self, assignment: bytes) -> None:
        self._pickled = assignment
        self._slabs: list[Slab] = []
        self._table: Table
        self._slab_of: list[Slab] = []

    def place(self) -> tuple[str, int]:
        """The node that it runs on, and its process there."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def make(self) -> bytes:
        """Make the envs: how many each slab has, and what they are like."""
        return _answered(self._make)

    def begin(self) -> None:
        """Make room for what the envs give, once they are known to be alike."""
        facts = self._slabs[0].facts
        first = 0
        for slab in self._slabs:
            slab.first = first
            first += slab.num_envs
        table = Table.empty(Layout.of(facts.observation_space), first, facts.reward_shape)
        for slab in self._slabs:
            slab.table = table
            self._slab_of += [slab] * slab.num_envs
        self._table = table

    def reset(self, message: bytes) -> Any:
        """Start an episode in some rows."""
        rows, seeds, options = pickle.loads(message)
        seed_of = dict(zip(rows, seeds, strict=True))
        infos: list[AnyInfo] = []
        failures = []
        for slab in self._slabs:
            own = [row for row in rows if self._slab_of[row] is slab]
            if not own:
                continue
            within = [row - slab.first for row in own]
            try:
                given = slab.reset(within, [seed_of[row] for row in own], options)
                infos += [(slab.first + k, info) for k, info in given]
            except Exception as error:
                failures.append(Failure.of(own, error))
        return self._outcome(rows, infos, failures)

    def step(self, message: bytes) -> Any:
        """One step of whole slabs and of single rows, with one action each, in that order."""
        slabs, rows, actions = pickle.loads(message)
        infos: list[AnyInfo] = []
        failures = []
        every: list[int] = []
        for slab, row in [*((self._slabs[k], None) for k in slabs), *self._singles(rows)]:
            done = [row] if row is not None else list(range(slab.first, slab.first + slab.num_envs))
            part = slice(len(every), len(every) + len(done))
            every += done
            try:
                given = _step(slab, None if row is None else row - slab.first, actions, part)
                infos += [(slab.first + k, info) for k, info in given]
            except Exception as error:
                failures.append(Failure.of(done, error))
        return self._outcome(every, infos, failures)

    def restore(self, message: bytes) -> bytes:
        """Begin anew after a worker's end: the observations last seen, and a plan a slab."""
        seen, plans = pickle.loads(message)
        return _answered(lambda: self._restore(seen, plans))

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """An attribute of every env, or what its method returns."""
        return _answered(
            lambda: [got for slab in self._slabs for got in slab.call(name, args, kwargs)]
        )

    def set(self, name: str, values: Sequence[Any]) -> bytes:
        """Set an attribute, one value an env."""
        return _answered(lambda: self._set(name, values))

    def render(self) -> bytes:
        """What every env renders."""
        return _answered(lambda: [frame for slab in self._slabs for frame in slab.render()])

    def close(self) -> bytes:
        """Close the envs."""
        return _answered(self._close)

    def _make(self) -> list[tuple[int, Facts]]:
        assignment: Assignment = pickle.loads(self._pickled)
        limit_threads(assignment.threads)
        for fns, first in zip(assignment.fns, assignment.first, strict=True):
            self._slabs += make_slabs(fns, assignment.autoreset_mode, first)
        return [(slab.num_envs, slab.facts) for slab in self._slabs]

    def _singles(self, rows: Sequence[int]) -> Iterator[tuple[Slab, int]]:
        return ((self._slab_of[row], row) for row in rows)

    def _outcome(self, rows: list[int], infos: AnyInfos, failures: list[Failure]) -> Any:
        table = self._table
        at = as_index(rows)
        outcome = Outcome(
            [leaf[at] for leaf in leaves(table.obs)],
            table.reward[at],
            table.terminated[at],
            table.truncated[at],
            infos,
            failures,
        )
        if sum(leaf.nbytes for leaf in outcome.obs) > _INLINE_BYTES:
            return outcome
        try:
            return pickle_message(outcome)
        except Exception as error:
            error.add_note(
                "an info or observation that cannot be sent to another process; leave it out, or "
                "use backend='serial'"
            )
            return pickle_message(Answer(None, Failure.of(rows, error)))

    def _restore(self, seen: list[Any], plans: Sequence[tuple[Any, ...]]) -> None:
        for out, leaf in zip(leaves(self._table.obs), seen, strict=True):
            out[:] = leaf
        for slab, (seeds, lost, over) in zip(self._slabs, plans, strict=True):
            slab.restore(seeds, lost, over)

    def _set(self, name: str, values: Sequence[Any]) -> None:
        for slab in self._slabs:
            slab.set_attr(name, values[slab.first : slab.first + slab.num_envs])

    def _close(self) -> None:
        slabs, self._slabs = self._slabs, []
        for slab in slabs:
            slab.close()


def as_index(rows: list[int]) -> slice | list[int]:
    """The rows as a slice where they are consecutive: a slice is not gathered."""
    first, last = rows[0], rows[-1]
    return slice(first, last + 1) if rows == list(range(first, last + 1)) else rows


def _step(slab: Slab, row: int | None, actions: Tree, part: slice) -> AnyInfos:
    """Step a slab, or one row of it, with a part of the actions sent."""
    if type(actions) is Given:
        return slab.step_given(row, actions[part])
    own = tree_map(lambda leaf: leaf[part], actions)
    if row is None:
        return slab.step(own)
    # A slab takes actions of all its envs: here copies of the one.
    return slab.step_one(row, tree_map(lambda leaf: np.repeat(leaf, slab.num_envs, 0), own))


def _answered(do: Callable[[], Any]) -> bytes:
    try:
        return pickle_message(Answer(do(), None))
    except Exception as error:
        return pickle_message(Answer(None, Failure.of([], error)))
