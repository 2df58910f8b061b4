"""A prioritised replay in shards: in processes of this machine, or in Ray actors on any node.

Transition number k lies in shard k modulo the number of shards, so that together they hold what one
replay of the same size would hold. A batch is drawn over the total of all priorities, as from one
replay: its numbers of [0, 1) fall into shards in proportion to their sums. This process is the only
one that writes, and every answer of a shard carries its sum: when all requests are answered, the
sums are exact. Batches that are drawn ahead of their update use the sums and priorities of their
time; the weights are those of the probabilities with which they were truly drawn.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.errors import SettingError, ShapeError, expect_positive, expect_whole
from hotloop.ops import importance_weights
from hotloop.rollout.replay import (
    BELOW_1,
    Array,
    Doubles,
    Drawn,
    Found,
    Ints,
    SavedReplay,
    Transitions,
    expect_given_out,
    stratified,
)
from hotloop.rollout.shard import Add, ByAge, Draw, Restore, SetErrors, ShardPool, ShardSettings
from hotloop.rollout.shard_messages import Search, ShardMessages

CHUNK_BYTES = 32 << 20  # of the replay that a message carries when all of it is saved or loaded


@dataclass(eq=False)
class _Batch:
    """A batch under way. parts: by shard. share: (shards,), of the draws that fell to each."""

    count: int
    share: Doubles
    parts: dict[int, Search]

    @property
    def is_complete(self) -> bool:
        return all(part.found is not None for part in self.parts.values())


class ShardedReplay:
    """The newest transitions, `settings.capacity` in each shard, drawn by priority.

    pool: makes the shards, and ends them. prefetch: batches that are drawn ahead of their update; 0
    draws each when it is asked for, by exact sums. restarts: how many shards that died may be
    replaced, each by an empty one; its transitions are lost. timeout_s: a shard that has not
    answered for so long counts as dead.
    `add` and `set_errors` do not wait for the shards, unless one has many messages before it; what
    goes wrong there is raised by a later call.

    Raises: SettingError for settings; WorkerError, here and from every method but `close`, where a
    shard has died and no restart is left.
    """

    def __init__(
        self,
        pool: ShardPool,
        num_shards: int,
        settings: ShardSettings,
        *,
        prefetch: int = 0,
        restarts: int = 3,
        timeout_s: float = 120.0,
    ) -> None:
        expect_whole("replay: shards", num_shards, 1)
        expect_whole("replay: prefetch", prefetch, 0)
        expect_positive("replay: timeout_s", timeout_s)
        self.added = 0  # transitions since it was made
        self.lost = 0  # of them, with shards that died
        self._settings, self._prefetch = settings, prefetch
        self._first = [0] * num_shards  # what was given to the shards that each one replaces
        self._batches: deque[_Batch] = deque()  # under way or complete, not yet taken
        self._messages = ShardMessages(
            pool, num_shards, restarts=restarts, timeout_s=timeout_s, on_death=self._lose
        )

    def __len__(self) -> int:
        return sum(map(self._held, range(len(self._first))))

    @property
    def restarts_left(self) -> int:
        """How many more shards may be replaced."""
        return self._messages.restarts_left

    def add(self, transitions: Transitions, error: Array) -> None:
        """Add transitions, in the place of the oldest; error: (n,), the first of each.

        Raises: ShapeError for errors that are not finite.
        """
        _expect_finite(error)
        self._deal(Add, transitions, error)

    def draw(self, count: int, rng: np.random.Generator, *, beta: float) -> Drawn | None:
        """Draw `count` transitions, one from each of `count` equal parts of the total.

        beta: how far the weights correct for the priorities, see `importance_weights`.
        Returns: None if all that it held was lost with its shards.
        Raises: SettingError where nothing was ever added.
        """
        if not self.added:
            raise SettingError("replay: draw: expected transitions, got none; add some first")
        if any(batch.count != count for batch in self._batches):
            self._batches.clear()
        batch = self._next(count, rng)
        if batch is None:
            return None
        number, probability, transitions = [], [], []
        for shard, part in batch.parts.items():
            found = part.found
            assert found is not None
            number.append((found.number + part.first) * len(self._first) + shard)
            probability.append(batch.share[shard] * found.priority / part.total)
            transitions.append(found.transitions)
        return Drawn(
            _joined(*number),
            importance_weights(_joined(*probability), max(1, len(self)), beta=beta),
            Transitions(*tree_map(_joined, *transitions)),
        )

    def set_errors(self, number: Ints, error: Array) -> None:
        """Set the errors of transitions that were drawn; those that are gone since are left out.

        Raises: ShapeError for errors that are not finite, and for numbers not given out yet.
        """
        _expect_finite(error)
        expect_given_out(number, self.added)
        self._messages.make_room()
        count = len(self._first)
        for shard, first in enumerate(self._first):
            # Those of a shard that was replaced are lost.
            own = (number % count == shard) & (number // count >= first)
            if own.any():
                request = SetErrors(number[own] // count - first, error[own])
                self._messages.hold(shard, request)

    def figures(self) -> dict[str, float]:
        """How many transitions it holds, in how many shards, and how many were lost."""
        return {
            "replay_size": float(len(self)),
            "replay_shards": float(len(self._first)),
            "transitions_lost": float(self.lost),
        }

    def close(self) -> None:
        """End all shards. Idempotent."""
        self._batches.clear()
        self._messages.close()

    # --- what is saved -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything in it, the oldest first: what one replay would give, of any number of shards.

        It is fetched from the shards, into memory of this process.
        """
        while True:
            saved = self._fetched()
            if saved is not None:
                return saved

    def load_state_dict(self, state: dict[str, Any], example: Transitions) -> None:
        """Take over what any replay of this capacity gave; example: transitions of the same kind.

        Raises: ShapeError for a state of another replay; nothing is changed then.
        """
        capacity = len(self._first) * self._settings.capacity
        saved = SavedReplay.of(state, capacity, example)
        if not (np.isfinite(saved.priority).all() and (saved.priority >= 0).all()):
            raise ShapeError("replay: state: expected priorities of 0 or more, got others")
        self._batches.clear()
        restarts, self.added = self.added > 0, 0
        for shard in range(len(self._first)) if restarts else ():
            self._messages.empty(shard)
            self._first[shard] = 0
        held = len(saved.priority)
        by_age = (saved.added - held + np.arange(held)) % capacity
        for start in range(0, held, self._chunk):
            rows = by_age[start : start + self._chunk]
            parts = [part[rows] for part in saved.parts]
            self._deal(Restore, _with_leaves(example, parts), saved.priority[rows])
        self._messages.wait_for_all()

    @property
    def _chunk(self) -> int:
        row_bytes = self._settings.nbytes / self._settings.capacity
        return max(1, int(CHUNK_BYTES / max(1.0, row_bytes)))

    def _fetched(self) -> dict[str, Any] | None:
        """All transitions by their age; None if a shard died meanwhile."""
        self._messages.wait_for_all()
        first = list(self._first)
        numbers = [self._numbers(shard) for shard in range(len(self._first))]
        order = np.sort(np.concatenate(numbers))
        priority, parts = np.empty(len(order)), list[Array]()
        for shard, own in enumerate(numbers):
            place = np.searchsorted(order, own)
            for start in range(0, len(own), self._chunk):
                found = self._by_age(shard, start)
                if found is None or self._first != first:
                    return None
                rows = place[start : start + self._chunk]
                arrays = list(leaves(found.transitions))
                parts = parts or [np.empty((len(order), *a.shape[1:]), a.dtype) for a in arrays]
                priority[rows] = found.priority
                for part, array in zip(parts, arrays, strict=True):
                    part[rows] = array
        return {"added": len(order), "priority": priority, "transitions": parts}

    def _by_age(self, shard: int, start: int) -> Found | None:
        search = Search(self._first[shard])
        self._messages.send(shard, ByAge(start, start + self._chunk), search)
        while search.found is None and self._first[shard] == search.first:
            self._messages.wait()
        return search.found

    # --- batches -------------------------------------------------------------------------------

    def _next(self, count: int, rng: np.random.Generator) -> _Batch | None:
        """Take the oldest batch, with `prefetch` others asked for behind it; None of nothing."""
        while True:
            self._ask_ahead(count, rng)
            if not self._batches:
                return None
            batch = self._batches[0]
            while not batch.is_complete and batch in self._batches:
                self._messages.wait()
            if batch.is_complete:
                return self._batches.popleft()

    def _ask_ahead(self, count: int, rng: np.random.Generator) -> None:
        """Ask for as many batches as are to be under way, while the shards hold anything."""
        while len(self._batches) <= self._prefetch:
            self._messages.make_room()
            # The share of a single shard is 1, whatever its sum is.
            is_known = self._prefetch or len(self._first) == 1
            if not is_known or not self._messages.totals.any():
                self._messages.wait_for_all()
            if not self._messages.totals.any():
                return
            self._batches.append(self._request(count, rng))

    def _request(self, count: int, rng: np.random.Generator) -> _Batch:
        """Ask the shards for a batch, each for the numbers that fall into its part of the total."""
        sums = self._messages.totals
        ends = np.cumsum(sums)
        point = stratified(count, rng) * ends[-1]
        upto = np.searchsorted(point, ends)
        # Rounding may leave points at the very end, beyond the last shard that has a sum.
        upto[np.flatnonzero(sums)[-1] :] = count
        batch = _Batch(count, sums / ends[-1], {})
        for shard, (start, stop) in enumerate(zip(np.append(0, upto), upto, strict=False)):
            if stop > start:
                own = (point[start:stop] - (ends[shard] - sums[shard])) / sums[shard]
                batch.parts[shard] = part = Search(self._first[shard])
                self._messages.send(shard, Draw(own.clip(0.0, BELOW_1)), part)
        return batch

    def _lose(self, shard: int) -> int:
        """Note that a shard has died; returns how many transitions are lost with it."""
        lost = self._held(shard)
        self.lost += lost
        self._first[shard] = self._given(shard)
        self._batches = deque(
            batch
            for batch in self._batches
            if shard not in batch.parts or batch.parts[shard].found is not None
        )
        return lost

    # --- numbers -------------------------------------------------------------------------------

    def _deal(
        self, request: type[Add] | type[Restore], transitions: Transitions, value: Array
    ) -> None:
        """Give transitions to the shards, one after the other in turn."""
        self._messages.make_room()
        count, before = len(self._first), self.added
        self.added += len(value)
        for shard in range(count):
            own = slice((shard - before) % count, None, count)
            if len(value[own]):
                self._messages.send(
                    shard, request(_rows_of(transitions, own), _rows_of(value, own))
                )

    def _given(self, shard: int) -> int:
        """Transitions that a shard was given, with those that it replaces."""
        return (self.added + len(self._first) - 1 - shard) // len(self._first)

    def _held(self, shard: int) -> int:
        return min(self._given(shard) - self._first[shard], self._settings.capacity)

    def _numbers(self, shard: int) -> Ints:
        """The numbers of all transitions in a shard, the oldest first."""
        given, held = self._given(shard), self._held(shard)
        return np.arange(given - held, given) * len(self._first) + shard


def _expect_finite(error: Array) -> None:
    if not np.isfinite(error).all():
        raise ShapeError("replay: error: expected finite numbers, got others")


def _rows_of(tree: Tree, chosen: slice) -> Tree:
    """Rows of every array, contiguous, as messages carry those without a further copy."""
    rows = tree_map(lambda array: np.ascontiguousarray(array[chosen]), tree)
    return Transitions(*rows) if isinstance(tree, Transitions) else rows


def _with_leaves(example: Transitions, arrays: Sequence[Array]) -> Transitions:
    """Transitions like the example, of these arrays."""
    following = iter(arrays)
    return Transitions(*tree_map(lambda _: next(following), example))


def _joined(*parts: Array) -> Array:
    """The rows of all parts; of a single one without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
