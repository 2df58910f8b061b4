"""Collect fragments from many workers, first come first served; each has a copy of the policy.

A worker that is asked for a fragment steps its envs until the fragment is full: no message is sent
for a step, and no worker waits for the slowest. Every worker has two requests, so that it goes on
while an answer is fetched; more would only increase the lag of the policy.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
from numpy.typing import DTypeLike

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree
from hotloop.errors import SettingError, WorkerError, expect_positive
from hotloop.loop import stage
from hotloop.loop.arrivals import Arrivals
from hotloop.loop.control import process_control
from hotloop.rollout.env_metadata import AnyVectorEnv
from hotloop.rollout.inference import InferenceSettings
from hotloop.rollout.pools import worker_pool
from hotloop.rollout.steps import Counts, Policy
from hotloop.rollout.worker import Failure, TakesWeights, Update, WorkerSettings
from hotloop.rollout.worker_pool import Died, Event, Resources

_LOG = logging.getLogger("hotloop")
IN_FLIGHT = 2  # requests of a worker: the one under way, and the next


@dataclass
class _State:
    """What is known of a worker."""

    generation: int = 0  # how often it was replaced
    started: bool = False  # whether it has answered since
    heard_s: float = 0.0  # when it last did
    asked: int = 0  # requests that have no answer yet
    wanted: int = 0  # without working ahead: fragments for this `collect`


class FragmentCollector:
    """Fragments of `num_workers` workers, each with a vector env and a copy of the policy.

    make_envs: makes the vector env of a worker; called in the worker. policy: as for
    `StepCollector`; it is pickled, by value where it is defined in a script. Its version is 0
    until it is updated.
    backend: "process" for this machine, "ray" for a cluster, "serial" for this process, where the
    workers take turns and the same seed gives the same fragments. num_cpus, num_gpus, placement:
    of each Ray actor: cores and cards that it asks for, and whether actors "spread" over the nodes
    or "pack" on few of them; with "ray" only.
    seed: `FragmentWorker` says which env gets which. restarts: how many workers may be replaced
    after they died or raised; each loses its own fragments under way only.
    server: an inference server acts for the envs of all workers, which have no copy of the policy
    then. With "ray" it asks for num_cpus, as each worker does, and in their place for num_gpus. It
    may be replaced as often as workers may.
    dtypes, to_env, frame_stack, frame_skip: as for `StepCollector`.
    policy_effect: "pure" lets experiments replace the policy in the workers, see `stage`.
    timeout_s: a worker that has not answered for so long counts as dead; None waits for ever.
    work_ahead: False lets a worker begin a fragment only when `collect` asks for it. The newest
    policy acts then, as on-policy learners expect, and workers rest between two calls. They take
    turns in who makes how many; with "ray", the cluster must have room for all.

    Raises: SettingError.
    """

    def __init__(
        self,
        make_envs: Callable[[], AnyVectorEnv],
        policy: Policy,
        *,
        fragment_steps: int,
        num_workers: int = 2,
        backend: str = "process",
        seed: int = 0,
        restarts: int = 3,
        timeout_s: float | None = None,
        work_ahead: bool = True,
        double_buffer: bool | Literal["auto"] = "auto",
        frame_stack: int = 0,
        frame_skip: int | None = None,
        dtypes: Mapping[str, DTypeLike] | None = None,
        to_env: Callable[[Tree], Tree] | None = None,
        policy_effect: Literal["pure", "stateful", "effectful"] = "effectful",
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
        placement: str = "spread",
        server: InferenceSettings | None = None,
    ) -> None:
        expect_positive("num_workers", num_workers)
        expect_positive("timeout_s", timeout_s)
        settings = WorkerSettings(
            make_envs=make_envs,
            num_workers=num_workers,
            fragment_steps=fragment_steps,
            seed=seed,
            double_buffer=double_buffer,
            frame_stack=frame_stack,
            frame_skip=frame_skip,
            policy_effect=policy_effect,
            dtypes=dtypes or {},
            to_env=to_env,
        )
        self.policy_version = 0
        self.counts = Counts()
        self.restarts_left = restarts
        self._takes_weights = isinstance(policy, TakesWeights)
        self._policy = Update.of(policy, 0)
        self._weights: Update | None = None
        self._timeout_s = timeout_s
        self._states = [_State() for _ in range(num_workers)]
        self._down: dict[int, str] = {}  # workers to be replaced, and why
        self._work_ahead = work_ahead
        self._turn = 0  # the worker that makes the next of them
        self._resting = 0  # how many `resting` blocks are open
        self._ready: deque[tuple[int, int, Fragment | Failure]] = deque()  # worker, generation
        self._arrivals = Arrivals("fragment", process_control())
        self._kept: deque[Fragment] = deque()  # taken by a `collect` that then had to raise
        self._closed = False
        resources = Resources(num_cpus, num_gpus, placement)
        self._workers = worker_pool(backend, settings, resources, server, restarts)
        if not work_ahead:
            self._workers.expect_room(num_workers)
        if self._workers.works_unwatched:
            _name_stages(policy_effect)
        self._wait = stage("fragment wait", self._workers.wait, effect="effectful")
        self._send = stage("broadcast", self._workers.broadcast, effect="effectful")
        for index in range(num_workers):
            self._start(index)

    def collect(self, n: int = 1) -> list[Fragment]:
        """Collect the next `n` fragments, from the workers that have them first.

        The caller may keep them: they lie in shared memory that is used again when the last array
        on it is dropped, and each keeps a file descriptor open: copy them to keep a thousand.
        Those of Ray are read-only.
        Raises: what a worker raised, with its traceback in a note; WorkerError if a worker
        died and no restart is left.
        """
        expect_positive("n", n)
        if self._closed or self._resting:
            state = "closed" if self._closed else "resting"
            raise WorkerError(f"fragment collector: expected an open one, got one that is {state}")
        if self.restarts_left > 0:
            for index in sorted(self._down):
                self._restart(index)
        self._take_in(self._wait(0))
        if not self._work_ahead:
            self._share_out(n - len(self._kept) - sum(state.wanted for state in self._states))
        fragments: list[Fragment] = []
        try:
            while len(fragments) < n:
                fragments.append(self._next())
        except BaseException:
            self._kept.extendleft(reversed(fragments))  # they come with the next call
            raise
        for fragment in fragments:
            self.counts.add(fragment)
            self._arrivals.taken(fragment)
        return fragments

    def update(self, policy_or_weights: Any) -> int:
        """Send a new policy, or weights for its `load_weights`, to all workers.

        It acts in the fragments that are begun afterwards.
        Returns: its version, with which their steps are stamped.
        Raises: SettingError for weights if the policy takes none.
        """
        if not callable(policy_or_weights) and not self._takes_weights:
            raise SettingError(
                "update: expected a policy, for the one at work has no load_weights(weights), got "
                f"{type(policy_or_weights).__qualname__}"
            )
        self.policy_version += 1
        if callable(policy_or_weights):
            update = Update.of(policy_or_weights, self.policy_version)
            self._takes_weights = isinstance(policy_or_weights, TakesWeights)
            self._policy, self._weights = update, None
        else:
            update = Update.of(policy_or_weights, self.policy_version, self._policy.version)
            self._weights = update
        alive = [i for i in range(len(self._states)) if i not in self._down]
        self._send(update, alive)
        return self.policy_version

    def wait_until_started(self) -> None:
        """Wait until every worker has made its first fragment; on Ray, which may have no place for
        some of them, until one has. What goes wrong meanwhile is for the next `collect` to raise.

        Without working ahead, those fragments are the first that `collect` returns.
        """
        if not self._work_ahead:
            self._share_out(len(self._states) - sum(state.wanted for state in self._states))
        while self._starting():
            self._take_in(self._wait(self._patience()))

    def _starting(self) -> bool:
        """Whether a worker that was asked, and may be expected to answer, never has."""
        if self._workers.may_lack_a_place and any(state.started for state in self._states):
            return False
        return any(
            state.asked and not state.started and i not in self._down
            for i, state in enumerate(self._states)
        )

    def server_figures(self) -> dict[str, float]:
        """What the inference server has done since it was asked last; nothing without one.

        Means of the rows of a batch and of the time that a request waited for others, and the
        share of its time that the server was at work.
        """
        return self._workers.figures()

    @property
    def waiting(self) -> int:
        """Fragments that have arrived and were not taken yet."""
        return len(self._ready) + len(self._kept)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """No worker works inside; fragments that were under way wait to be taken.

        May be nested. A worker that dies or raises on the way is dealt with by the next `collect`.
        A Ray actor that has no place yet is not waited for: it begins when it has one.
        """
        self._resting += 1
        try:
            # Workers that only work while they are waited for rest already.
            while self._workers.works_unwatched and self._under_way():
                self._take_in(self._wait(self._patience()))
            yield
        finally:
            self._resting -= 1
            if not self._closed:
                for index in range(len(self._states)):
                    self._ask(index)

    def _under_way(self) -> bool:
        """Whether a worker that lives has a request without an answer."""
        may_lack_a_place = self._workers.may_lack_a_place
        return any(
            state.asked and i not in self._down and (state.started or not may_lack_a_place)
            for i, state in enumerate(self._states)
        )

    def close(self) -> None:
        """End all workers. Idempotent; fragments that were returned stay valid."""
        self._closed = True
        self._ready.clear()
        self._kept.clear()
        self._workers.close()

    def __enter__(self) -> "FragmentCollector":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- workers -----------------------------------------------------------------------------

    def _start(self, index: int) -> None:
        self._states[index].heard_s = time.monotonic()
        self._workers.start(index, self._states[index].generation, self._policy)
        if self._weights is not None:
            self._workers.broadcast(self._weights, [index])
        self._states[index].asked, self._states[index].started = 0, False
        self._ask(index)

    def _ask(self, index: int) -> None:
        """Ask a worker for as many fragments as it may have under way.

        Not where one has died for good: what is left is handed out, and then that is said.
        """
        if self._resting or index in self._down or (self._down and self.restarts_left < 1):
            return
        state = self._states[index]
        # Of a worker that was replaced, only the wanted ones count that it had made before.
        ready = sum(
            1
            for other, generation, _ in self._ready
            if other == index and (generation == state.generation or not self._work_ahead)
        )
        while state.asked + ready < (IN_FLIGHT if self._work_ahead else state.wanted):
            state.asked += 1
            self._workers.request(index)

    def _share_out(self, fragments: int) -> None:
        """Want so many more fragments, of one worker after the other."""
        for _ in range(fragments):
            self._states[self._turn].wanted += 1
            self._turn = (self._turn + 1) % len(self._states)
        for index in range(len(self._states)):
            self._ask(index)

    def _restart(self, index: int) -> None:
        why = self._down[index]
        if self.restarts_left < 1:
            raise WorkerError(
                f"fragment worker {index}: {why}; expected it to live, and no restart is left; look"
                " for what ended it, or allow more restarts"
            )
        self._workers.end(index)
        self.restarts_left -= 1
        _LOG.warning(
            "fragment worker %d: %s; its fragments under way are lost, and another takes its place "
            "(%d more may be replaced)",
            index,
            why,
            self.restarts_left,
        )
        self._states[index].generation += 1
        del self._down[index]
        self._start(index)

    def _next(self) -> Fragment:
        if self._kept:
            return self._kept.popleft()
        while not self._ready:
            for index in sorted(self._down):
                self._restart(index)
            self._take_in(self._wait(self._patience()))
        index, generation, result = self._ready.popleft()
        self._states[index].wanted = max(0, self._states[index].wanted - 1)
        if not isinstance(result, Fragment):
            error: Exception = cloudpickle.loads(result.error)
            error.add_note(f"in fragment worker {index}")
            raise error
        if generation == self._states[index].generation:
            self._ask(index)
        return result

    def _take_in(self, events: list[Event]) -> None:
        now = time.monotonic()
        for event in events:
            index = event.worker
            if index in self._down:
                continue  # it raised, and ended on its own afterwards
            state = self._states[index]
            state.heard_s, state.started = now, True
            if isinstance(event, Died):
                self._down[index] = f"it died ({event.reason})"
                continue
            state.asked -= 1
            self._ready.append((index, state.generation, event.result))
            self._arrivals.came(event.result, f"worker {index}")
            if not isinstance(event.result, Fragment):
                self._down[index] = f"it raised {event.result.name}"
        if self._timeout_s is not None:
            for index, state in enumerate(self._states):
                if now - state.heard_s > self._timeout_s:
                    self._down.setdefault(index, f"no answer for {self._timeout_s:g} s")

    def _patience(self) -> float | None:
        if self._timeout_s is None:
            return None
        oldest_s = min(state.heard_s for state in self._states)
        return max(0.0, oldest_s + self._timeout_s - time.monotonic()) + 0.01


def _name_stages(policy_effect: Literal["pure", "stateful", "effectful"]) -> None:
    """Name the stages of the workers here, so that an experiment knows them.

    What they change cannot be put back from here.
    """
    stage("act", effect=policy_effect)
    for name in ("env step", "env send", "env wait", "store"):
        stage(name, effect="effectful")
