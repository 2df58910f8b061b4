"""Messages to the shards of a replay and their answers: in order, bounded, with deaths made good.

What needs no answer is not waited for, up to so many messages a shard. A shard that dies, or is
silent for too long, is replaced by an empty one while restarts are left.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import cloudpickle
import numpy as np

from hotloop.errors import WorkerError
from hotloop.rollout.replay import Doubles, Found
from hotloop.rollout.shard import Answer, Answered, Event, Request, ShardPool
from hotloop.rollout.worker import Failure

MAX_UNANSWERED = 16  # messages that a shard may have before it: more are sent when it has answered
# Requests that wait for a message to go with: a draw costs one message then, and not two.
MAX_HELD = 4
_LOG = logging.getLogger("hotloop")


@dataclass(eq=False)
class Search:
    """Transitions that a shard was asked for. first: what is added to the numbers it gives."""

    first: int
    found: Found | None = None
    total: float = 0.0  # of the shard's priorities then


@dataclass(eq=False)
class _State:
    """What is known of a shard."""

    started: bool = False  # whether it has answered anything
    total: float = 0.0  # of its priorities, at its last answer
    heard_s: float = 0.0  # when that was, or when it was asked after a rest
    held: list[Request] = field(default_factory=list)  # that go with the next message
    # Messages that have no answer yet, with what they search for.
    unanswered: deque[Search | None] = field(default_factory=deque)


class ShardMessages:
    """The messages to all shards of a replay, which it starts.

    on_death: called with the number of a shard that has died; returns how many transitions are lost
    with it. What a shard raised is raised by the methods that wait.

    Raises: WorkerError, here and from every method but `close`, where a shard has died and no
    restart is left, or has raised before.
    """

    def __init__(
        self,
        pool: ShardPool,
        num_shards: int,
        *,
        restarts: int,
        timeout_s: float,
        on_death: Callable[[int], int],
    ) -> None:
        self.restarts_left = restarts
        self._pool, self._timeout_s, self._on_death = pool, timeout_s, on_death
        self._states = [_State() for _ in range(num_shards)]
        self._failed = ""  # why it cannot go on
        try:
            for shard in range(num_shards):
                self._start(shard)
            self.wait_for_all()
        except BaseException:
            pool.close()
            raise

    @property
    def totals(self) -> Doubles:
        """The sum of the priorities in each shard, (shards,), at its last answer."""
        return np.array([state.total for state in self._states])

    def hold(self, shard: int, request: Request) -> None:
        """Keep a request for the next message to a shard."""
        held = self._states[shard].held
        held.append(request)
        if len(held) >= MAX_HELD:
            self.send(shard)

    def send(
        self, shard: int, request: Request | None = None, search: Search | None = None
    ) -> None:
        """Send a shard what is held for it, and then a request, with what it is to find."""
        state = self._states[shard]
        if not state.unanswered:
            state.heard_s = time.monotonic()
        state.unanswered.append(search)
        held, state.held = state.held, []
        self._pool.send(shard, (*held, *(() if request is None else (request,))))

    def make_room(self) -> None:
        """Wait while a shard has too many messages before it."""
        self._expect_open()
        while any(len(state.unanswered) >= MAX_UNANSWERED for state in self._states):
            self.wait()

    def wait_for_all(self) -> None:
        """Wait until all that was asked for is done."""
        self._expect_open()
        for shard, state in enumerate(self._states):
            if state.held:
                self.send(shard)
        while any(state.unanswered for state in self._states):
            self.wait()

    def wait(self) -> None:
        """Wait for the next answers, or for a shard that has been silent for too long."""
        waiting = [shard for shard, state in enumerate(self._states) if state.unanswered]
        until_s = min(self._states[shard].heard_s for shard in waiting) + self._timeout_s
        self._take_in(self._pool.wait(max(0.0, until_s - time.monotonic()) + 0.01))
        for shard in waiting:
            state = self._states[shard]
            if state.unanswered and time.monotonic() > state.heard_s + self._timeout_s:
                self._pool.end(shard)
                why = "" if state.started else " to its start; it may have found no room"
                self._replace(shard, f"no answer for {self._timeout_s:g} s{why}")

    def empty(self, shard: int) -> None:
        """Start a shard anew."""
        self._pool.end(shard)
        self._start(shard)

    def close(self) -> None:
        """End all shards. Idempotent."""
        self._failed = "expected an open one, got one that is closed"
        self._pool.close()

    # --- shards ----------------------------------------------------------------------------------

    def _start(self, shard: int) -> None:
        self._states[shard] = _State(heard_s=time.monotonic())
        self._states[shard].unanswered.append(None)  # it says that it is there
        self._pool.start(shard)

    def _expect_open(self) -> None:
        if self._failed:
            raise WorkerError(f"replay: {self._failed}")

    def _take_in(self, events: list[Event]) -> None:
        failures: list[tuple[int, Failure]] = []
        for event in events:
            if not isinstance(event, Answered):
                self._replace(event.shard, f"it died ({event.reason})")
                continue
            self._take_answer(self._states[event.shard], event.answer)
            if isinstance(event.answer.result, Failure):
                failures.append((event.shard, event.answer.result))
        for shard, failure in failures:
            # What it holds may differ from what it was given.
            self._failed = f"shard {shard}: it raised {failure.name} before; make the replay anew"
            error: Exception = cloudpickle.loads(failure.error)
            error.add_note(f"in replay shard {shard}")
            raise error

    def _take_answer(self, state: _State, answer: Answer) -> None:
        state.started, state.heard_s, state.total = True, time.monotonic(), answer.total
        search = state.unanswered.popleft()
        if search is not None and isinstance(answer.result, Found):
            search.found, search.total = answer.result, answer.total

    def _replace(self, shard: int, why: str) -> None:
        """Put an empty shard in the place of a dead one."""
        lost = f"{self._on_death(shard):,} transitions are lost with it"
        if self.restarts_left < 1:
            self._failed = (
                f"shard {shard}: {why}; {lost}; expected it to live, and no restart is left; look "
                "for what ended it, or allow more restarts"
            )
            raise WorkerError(f"replay: {self._failed}")
        self.restarts_left -= 1
        _LOG.warning(
            "replay shard %d: %s; %s, and an empty one takes its place (%d more may be replaced)",
            shard,
            why,
            lost,
            self.restarts_left,
        )
        self._start(shard)
