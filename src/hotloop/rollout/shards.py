"""A prioritised replay in shards: in processes of this machine, or in Ray actors on any node.

Transition number k lies in shard k modulo the number of shards, so that together they hold what one
replay of the same size would hold. A batch is drawn over the total of all priorities, as from one
replay: its numbers of [0, 1) fall into shards in proportion to their sums. This process is the only
one that writes, and every answer of a shard carries its sum: when all requests are answered, the
sums are exact. Batches that are drawn ahead of their update use the sums and priorities of their
time; the weights are those of the probabilities with which they were truly drawn.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np

from hotloop.data.layout import leaves, tree_map
from hotloop.errors import SettingError, ShapeError, WorkerError, expect_positive, expect_whole
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
    stratified,
)
from hotloop.rollout.shard import (
    Add,
    Answer,
    Answered,
    ByAge,
    Draw,
    Event,
    Request,
    Restore,
    SetErrors,
    ShardPool,
    ShardSettings,
)
from hotloop.rollout.worker import Failure

MAX_UNANSWERED = 16  # requests that a shard may have before it: more are sent when it has answered
CHUNK_BYTES = 32 << 20  # of the replay that a message carries when all of it is saved or loaded
_LOG = logging.getLogger("hotloop")


@dataclass(eq=False)
class _Part:
    """What one shard is asked for, of a batch or of all transitions."""

    found: Found | None = None  # numbered over all shards
    total: float = 0.0  # of the shard's priorities then


@dataclass(eq=False)
class _Batch:
    """A batch under way. parts: by shard. share: (shards,), of the draws that fell to each."""

    count: int
    share: Doubles
    parts: dict[int, _Part]

    @property
    def is_complete(self) -> bool:
        return all(part.found is not None for part in self.parts.values())


@dataclass(eq=False)
class _State:
    """What is known of a shard."""

    first: int = 0  # the shard's transitions that were given to those it replaces
    total: float = 0.0  # of its priorities, at its last answer
    heard_s: float = 0.0  # when that was, or when it was asked after a rest
    # Requests that have no answer yet; a part waits for what is found.
    unanswered: deque[_Part | None] = field(default_factory=deque)


class ShardedReplay:
    """The newest transitions, `settings.capacity` in each shard, drawn by priority.

    pool: makes the shards, and ends them. prefetch: batches that are drawn ahead of their update; 0
    draws each when it is asked for, by exact sums. restarts: how many shards that died may be
    replaced, each by an empty one; its transitions are lost. timeout_s: a shard that has not
    answered for so long counts as dead.
    `add` and `set_errors` do not wait for the shards, unless one has many requests before it; what
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
        self.restarts_left = restarts
        self._pool, self._settings = pool, settings
        self._prefetch, self._timeout_s = prefetch, timeout_s
        self._states = [_State() for _ in range(num_shards)]
        self._batches: deque[_Batch] = deque()  # under way or complete, not yet taken
        self._failed = ""  # why it cannot go on
        try:
            for shard in range(num_shards):
                self._start(shard)
            self._hear_all()
        except BaseException:
            pool.close()
            raise

    def __len__(self) -> int:
        return sum(map(self._held, range(len(self._states))))

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
        found, probability = [], []
        for shard, part in sorted(batch.parts.items()):
            assert part.found is not None
            found.append(part.found)
            probability.append(batch.share[shard] * part.found.priority / part.total)
        return Drawn(
            _joined(*(one.number for one in found)),
            importance_weights(_joined(*probability), max(1, len(self)), beta=beta),
            Transitions(*tree_map(_joined, *(one.transitions for one in found))),
        )

    def set_errors(self, number: Ints, error: Array) -> None:
        """Set the errors of transitions that were drawn; those that are gone since are left out.

        Raises: ShapeError for errors that are not finite.
        """
        _expect_finite(error)
        self._make_room()
        count = len(self._states)
        for shard, state in enumerate(self._states):
            # Those of a shard that was replaced are lost.
            own = (number % count == shard) & (number // count >= state.first)
            if own.any():
                request = SetErrors(number[own] // count - state.first, error[own])
                self._send(shard, request, None)

    def figures(self) -> dict[str, float]:
        """How many transitions it holds, in how many shards, and how many were lost."""
        return {
            "replay_size": float(len(self)),
            "replay_shards": float(len(self._states)),
            "transitions_lost": float(self.lost),
        }

    def close(self) -> None:
        """End all shards. Idempotent."""
        self._failed = "it is closed"
        self._batches.clear()
        self._pool.close()

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
        capacity = len(self._states) * self._settings.capacity
        saved = SavedReplay.of(state, capacity, example)
        if not (np.isfinite(saved.priority).all() and (saved.priority >= 0).all()):
            raise ShapeError("replay: state: expected priorities of 0 or more, got others")
        self._batches.clear()
        restarts, self.added = self.added > 0, 0
        for shard in range(len(self._states)) if restarts else ():
            self._pool.end(shard)
            self._start(shard)
        held = len(saved.priority)
        by_age = (saved.added - held + np.arange(held)) % capacity
        for start in range(0, held, self._chunk):
            rows = by_age[start : start + self._chunk]
            parts = iter([part[rows] for part in saved.parts])
            transitions = Transitions(*tree_map(lambda _: next(parts), example))  # noqa: B023
            self._deal(Restore, transitions, saved.priority[rows])
        self._hear_all()

    @property
    def _chunk(self) -> int:
        row_bytes = self._settings.nbytes / self._settings.capacity
        return max(1, int(CHUNK_BYTES / max(1.0, row_bytes)))

    def _fetched(self) -> dict[str, Any] | None:
        """All transitions by their age; None if a shard died meanwhile."""
        self._hear_all()
        states = list(self._states)
        numbers = [self._numbers(shard) for shard in range(len(self._states))]
        order = np.sort(np.concatenate(numbers))
        priority, parts = np.empty(len(order)), list[Array]()
        for shard, own in enumerate(numbers):
            place = np.searchsorted(order, own)
            for start in range(0, len(own), self._chunk):
                found = self._by_age(shard, start)
                if found is None or self._states != states:
                    return None
                rows = place[start : start + self._chunk]
                arrays = list(leaves(found.transitions))
                parts = parts or [np.empty((len(order), *a.shape[1:]), a.dtype) for a in arrays]
                priority[rows] = found.priority
                for part, array in zip(parts, arrays, strict=True):
                    part[rows] = array
        return {"added": len(order), "priority": priority, "transitions": parts}

    def _by_age(self, shard: int, start: int) -> Found | None:
        part, state = _Part(), self._states[shard]
        self._send(shard, ByAge(start, start + self._chunk), part)
        while part.found is None and self._states[shard] is state:
            self._hear()
        return part.found

    # --- batches -------------------------------------------------------------------------------

    def _next(self, count: int, rng: np.random.Generator) -> _Batch | None:
        """Take the oldest batch, with `prefetch` others asked for behind it; None of nothing."""
        while True:
            self._ask_ahead(count, rng)
            if not self._batches:
                return None
            batch = self._batches[0]
            while not batch.is_complete and batch in self._batches:
                self._hear()
            if batch.is_complete:
                return self._batches.popleft()

    def _ask_ahead(self, count: int, rng: np.random.Generator) -> None:
        """Ask for as many batches as are to be under way, while the shards hold anything."""
        while len(self._batches) <= self._prefetch:
            self._make_room()
            if not self._prefetch or not self._sums().any():
                self._hear_all()
            if not self._sums().any():
                return
            self._batches.append(self._request(count, rng))

    def _request(self, count: int, rng: np.random.Generator) -> _Batch:
        """Ask the shards for a batch, each for the numbers that fall into its part of the total."""
        sums = self._sums()
        ends = np.cumsum(sums)
        point = stratified(count, rng) * ends[-1]
        upto = np.searchsorted(point, ends)
        # Rounding may leave points at the very end, beyond the last shard that has a sum.
        upto[np.flatnonzero(sums)[-1] :] = count
        batch = _Batch(count, sums / ends[-1], {})
        for shard, (start, stop) in enumerate(zip(np.append(0, upto), upto, strict=False)):
            if stop > start:
                own = (point[start:stop] - (ends[shard] - sums[shard])) / sums[shard]
                batch.parts[shard] = part = _Part()
                self._send(shard, Draw(own.clip(0.0, BELOW_1)), part)
        return batch

    def _sums(self) -> Doubles:
        return np.array([state.total for state in self._states])

    # --- numbers -------------------------------------------------------------------------------

    def _deal(
        self, request: type[Add] | type[Restore], transitions: Transitions, value: Array
    ) -> None:
        """Give transitions to the shards, one after the other in turn."""
        self._make_room()
        count, before = len(self._states), self.added
        self.added += len(value)
        for shard in range(count):
            own = slice((shard - before) % count, None, count)
            if len(value[own]):
                mine = tree_map(lambda rows: np.ascontiguousarray(rows[own]), transitions)  # noqa: B023
                self._send(
                    shard, request(Transitions(*mine), np.ascontiguousarray(value[own])), None
                )

    def _given(self, shard: int) -> int:
        """Transitions that a shard was given, with those that it replaces."""
        return (self.added + len(self._states) - 1 - shard) // len(self._states)

    def _held(self, shard: int) -> int:
        return min(self._given(shard) - self._states[shard].first, self._settings.capacity)

    def _numbers(self, shard: int) -> Ints:
        """The numbers of all transitions in a shard, the oldest first."""
        given, held = self._given(shard), self._held(shard)
        return np.arange(given - held, given) * len(self._states) + shard

    # --- requests and answers ------------------------------------------------------------------

    def _start(self, shard: int) -> None:
        self._states[shard] = _State(self._given(shard), heard_s=time.monotonic())
        self._states[shard].unanswered.append(None)
        self._pool.start(shard)

    def _send(self, shard: int, request: Request, part: _Part | None) -> None:
        state = self._states[shard]
        if not state.unanswered:
            state.heard_s = time.monotonic()
        state.unanswered.append(part)
        self._pool.send(shard, request)

    def _make_room(self) -> None:
        """Take in what has arrived, and wait while a shard has too many requests before it."""
        self._take_in(self._pool.wait(0))
        while any(len(state.unanswered) >= MAX_UNANSWERED for state in self._states):
            self._hear()

    def _hear_all(self) -> None:
        """Wait until all requests are answered."""
        while any(state.unanswered for state in self._states):
            self._hear()

    def _hear(self) -> None:
        """Wait for the next answers, or for a shard that has been silent for too long."""
        waiting = [shard for shard, state in enumerate(self._states) if state.unanswered]
        until_s = min(self._states[shard].heard_s for shard in waiting) + self._timeout_s
        self._take_in(self._pool.wait(max(0.0, until_s - time.monotonic()) + 0.01))
        for shard in waiting:
            state = self._states[shard]
            if state.unanswered and time.monotonic() > state.heard_s + self._timeout_s:
                self._pool.end(shard)
                self._replace(shard, f"no answer for {self._timeout_s:g} s")

    def _take_in(self, events: list[Event]) -> None:
        if self._failed:
            raise WorkerError(f"replay: {self._failed}")
        failures: list[tuple[int, Failure]] = []
        for event in events:
            if not isinstance(event, Answered):
                self._replace(event.shard, f"it died ({event.reason})")
                continue
            self._take_answer(event.shard, event.answer)
            if isinstance(event.answer.result, Failure):
                failures.append((event.shard, event.answer.result))
        for shard, failure in failures:
            error: Exception = cloudpickle.loads(failure.error)
            error.add_note(f"in replay shard {shard}")
            raise error

    def _take_answer(self, shard: int, answer: Answer) -> None:
        state = self._states[shard]
        state.heard_s, state.total = time.monotonic(), answer.total
        part = state.unanswered.popleft()
        if part is not None and isinstance(answer.result, Found):
            number = (answer.result.number + state.first) * len(self._states) + shard
            part.found, part.total = answer.result._replace(number=number), answer.total

    def _replace(self, shard: int, why: str) -> None:
        """Put an empty shard in the place of a dead one; batches that wait for it are dropped."""
        lost = self._held(shard)
        self.lost += lost
        left = f"{lost:,} transitions are lost with it"
        if self.restarts_left < 1:
            self._failed = (
                f"shard {shard}: {why}; {left}; expected it to live, and no restart is left; look "
                "for what ended it, or allow more restarts"
            )
            raise WorkerError(f"replay: {self._failed}")
        self.restarts_left -= 1
        _LOG.warning(
            "replay shard %d: %s; %s, and an empty one takes its place (%d more may be replaced)",
            shard,
            why,
            left,
            self.restarts_left,
        )
        self._batches = deque(
            batch
            for batch in self._batches
            if shard not in batch.parts or batch.parts[shard].found is not None
        )
        self._start(shard)


def _expect_finite(error: Array) -> None:
    if not np.isfinite(error).all():
        raise ShapeError("replay: error: expected finite numbers, got others")


def _joined(*parts: Array) -> Array:
    """The rows of all parts; of a single one without a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
