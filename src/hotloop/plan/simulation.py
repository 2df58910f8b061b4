"""A discrete-event simulation of a cluster, which checks the closed forms of the cost model.

Here nothing is assumed of how times add up: the head is a resource that sends or reads one message
at a time, a core steps one env at a time, and who is ready first is served first. Stragglers,
queues, and envs that wait for each other follow from that. Needs simpy, which only this module
loads.
"""

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.errors import SettingError
from hotloop.plan.fit import Draws, parts_of
from hotloop.plan.lag import Learning
from hotloop.plan.modes import DOUBLE, FRAGMENTS, MODES, SEND, Cell
from hotloop.plan.settings import PlanSettings

try:
    import simpy
except ImportError:
    raise SettingError(
        "--simulate needs simpy, which is not installed: pip install 'hotloop[plan]'"
    ) from None

MOST_NODES = 1_000
LEAST_ROUNDS, MESSAGES = 6, 6_000  # steps of all envs that are simulated; messages, if more
WARM_UP = 3  # of so many rounds the first does not count

Events = Generator["simpy.Event", Any, None]


@dataclass(frozen=True)
class Cluster:
    """What is simulated. send_s, receive_s: of the head for one message; latency_s: of a message
    beside; carry_s: of the network for one; learn_s: of the learner for one env step; step_spread:
    standard deviation of a step's duration over its mean, log-normal.
    """

    cell: Cell
    send_s: float
    receive_s: float
    latency_s: float = 0.0
    policy_s: float = 0.0
    carry_s: float = 0.0
    learn_s: float = 0.0
    step_spread: float = 0.0
    seed: int = 0

    @property
    def messages(self) -> int:
        """Messages of one step of all envs, or of one fragment of each node."""
        each_env = MODES[self.cell.mode].env_steps(self.cell) == 1
        return self.cell.cores if each_env else self.cell.nodes

    def durations(self) -> Iterator[float]:
        """How long the envs of one message step, again and again: the slowest of each step."""
        rng = np.random.default_rng(self.seed)
        cell = self.cell
        steps = cell.steps_per_fragment if cell.mode == FRAGMENTS else 1
        envs = cell.cores // self.messages
        if self.step_spread == 0:
            while True:
                yield cell.step_s * steps
        sigma = math.sqrt(math.log1p(self.step_spread**2))
        while True:
            drawn = rng.lognormal(-(sigma**2) / 2, sigma, (steps, envs))
            yield float(drawn.max(axis=1).sum()) * cell.step_s


def cluster_of(draws: Draws, cell: Cell, settings: PlanSettings) -> Cluster:
    """The cluster of the fitted model: its medians. An overlap below one half has no simulation
    with one head, and counts as one half.
    """
    env_steps = MODES[cell.mode].env_steps(cell)
    parts = parts_of(draws, cell)
    message_s = float(np.median(draws.call_of(env_steps))) * env_steps
    overlap = max(0.5, float(np.median(draws.overlap)))
    return Cluster(
        cell=cell,
        send_s=(1 - overlap) * message_s,
        receive_s=overlap * message_s,
        latency_s=float(np.median(parts.latency_s)),
        policy_s=settings.policy_s,
        carry_s=env_steps * settings.carry_s,
        learn_s=0.0 if settings.learner_sps is None else 1 / settings.learner_sps,
        step_spread=settings.step_spread,
    )


def simulate_rate(cluster: Cluster) -> float:
    """Env steps/s that arrive at the head once the simulation is in its stride.

    Raises: SettingError for more than 1,000 nodes.
    """
    if cluster.cell.nodes > MOST_NODES:
        raise SettingError(
            f"nodes: expected at most {MOST_NODES} to be simulated, got {cluster.cell.nodes}; the "
            "closed form has no such limit"
        )
    rate = _GROUPS[cluster.cell.mode](_Simulated(cluster))
    if MODES[cluster.cell.mode].asynchronous:
        return rate  # the learner was one of the resources
    return 1 / (1 / rate + cluster.learn_s)


class _Simulated:
    """One simulation: the head, the nodes, and when messages were read."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = simpy.Environment()
        self.head, self.network, self.learner = (simpy.Resource(self.world, 1) for _ in range(3))
        self.durations = cluster.durations()
        self.read_at: list[float] = []

    def rate(self, env_steps: int) -> float:
        """Run until enough messages were read. env_steps: in each."""
        rounds = max(LEAST_ROUNDS, MESSAGES // self.cluster.messages)
        count, warm_up = (n * self.cluster.messages for n in (rounds, rounds // WARM_UP))
        while len(self.read_at) < count:
            self.world.step()
        start, end = self.read_at[warm_up - 1], self.read_at[count - 1]
        return (count - warm_up) * env_steps / (end - start)

    def at(self, what: "simpy.Resource", seconds: float) -> Events:
        """Wait for a resource, and keep it for so long."""
        if seconds > 0:
            with what.request() as turn:
                yield turn
                yield self.world.timeout(seconds)

    def message(self, core: "simpy.Resource") -> Events:
        """One message's way: its envs step, the answer comes back, the head reads it."""
        yield from self.at(core, next(self.durations))
        yield self.world.timeout(self.cluster.latency_s)
        yield from self.at(self.network, self.cluster.carry_s)
        yield from self.at(self.head, self.cluster.receive_s)
        self.read_at.append(self.world.now)

    def group(self, cores: list["simpy.Resource"]) -> Events:
        """Envs that step together, again and again: all are sent on once all were read."""
        while True:
            under_way = []
            with self.head.request() as turn:  # the policy, then one message after the other
                yield turn
                yield self.world.timeout(self.cluster.policy_s)
                for core in cores:
                    yield self.world.timeout(self.cluster.send_s)
                    under_way.append(self.world.process(self.message(core)))
            yield simpy.AllOf(self.world, under_way)

    def node(self) -> Events:
        """A node that is sent on in the same turn in which its answer was read."""
        answer_s = self.cluster.policy_s / self.cluster.messages + self.cluster.send_s
        yield from self.at(self.head, answer_s)
        while True:
            yield self.world.timeout(next(self.durations) + self.cluster.latency_s)
            yield from self.at(self.network, self.cluster.carry_s)
            yield from self.at(self.head, self.cluster.receive_s + answer_s)
            self.read_at.append(self.world.now)

    def acting(self) -> Events:
        """A node with a policy of its own: the head reads one fragment while the next is made."""
        steps = self.cluster.cell.steps_per_fragment
        waiting = simpy.Resource(self.world, 1)
        while True:
            beside = (self.cluster.policy_s + self.cluster.latency_s) * steps
            yield self.world.timeout(next(self.durations) + beside)
            place = waiting.request()
            yield place
            self.world.process(self.fragment(waiting, place))

    def fragment(self, waiting: "simpy.Resource", place: Any) -> Events:
        """A fragment waits for the head, which reads it, and for the learner."""
        cell = self.cluster.cell
        learn_s = self.cluster.learn_s * cell.cores_per_node * cell.steps_per_fragment
        yield from self.at(self.network, self.cluster.carry_s)
        yield from self.at(self.head, self.cluster.send_s + self.cluster.receive_s)
        yield from self.at(self.learner, learn_s)
        self.read_at.append(self.world.now)
        waiting.release(place)

    def cores(self) -> list["simpy.Resource"]:
        """What steps the envs of each message."""
        return [simpy.Resource(self.world, 1) for _ in range(self.cluster.messages)]


def _one_group(simulated: _Simulated) -> float:
    cores = simulated.cores()
    simulated.world.process(simulated.group(cores))
    return simulated.rate(simulated.cluster.cell.cores // len(cores))


def _two_groups(simulated: _Simulated) -> float:
    cores = simulated.cores()
    for _ in range(2):
        simulated.world.process(simulated.group(cores))
    return simulated.rate(simulated.cluster.cell.cores // len(cores))


def _group_a_node(simulated: _Simulated) -> float:
    for _ in range(simulated.cluster.cell.nodes):
        simulated.world.process(simulated.node())
    return simulated.rate(simulated.cluster.cell.cores_per_node)


def _acting_nodes(simulated: _Simulated) -> float:
    cell = simulated.cluster.cell
    for _ in range(cell.nodes):
        simulated.world.process(simulated.acting())
    return simulated.rate(cell.cores_per_node * cell.steps_per_fragment)


# How the envs of each mode wait for each other.
_GROUPS: dict[str, Callable[[_Simulated], float]] = {
    **dict.fromkeys(MODES, _one_group),
    DOUBLE: _two_groups,
    SEND: _group_a_node,
    FRAGMENTS: _acting_nodes,
}


@dataclass(frozen=True)
class SimulatedLearning:
    """What was seen of a learner beside its actors: fragments/s learned from, the lag in updates,
    the seconds that a fragment waited, and the share of the time that the learner worked.
    """

    fragments_per_s: float
    lag: float
    wait_s: float
    busy: float


def simulate_learning(
    learning: Learning, *, spread: float = 0.0, updates: int = 400, seed: int = 0
) -> SimulatedLearning:
    """Simulate actors that send fragments while a learner learns. spread: standard deviation of a
    fragment's duration over its mean. The first quarter of the updates does not count.
    """
    simulated = _SimulatedLearner(learning, spread, seed)
    while len(simulated.taken) < updates:
        simulated.world.step()
    at, lags, waits = np.array(simulated.taken[updates // 4 :]).T
    per_s = float((len(at) - 1) / (at[-1] - at[0]))
    return SimulatedLearning(
        fragments_per_s=per_s * learning.batch_fragments,
        lag=float(lags.mean()),
        wait_s=float(waits.mean()),
        busy=per_s * learning.update_s,
    )


class _SimulatedLearner:
    """A learner beside its actors. taken: of each batch the time, the mean lag, the mean wait."""

    def __init__(self, learning: Learning, spread: float, seed: int) -> None:
        self.learning = learning
        self.world = simpy.Environment()
        self.queue: simpy.Store = simpy.Store(self.world)
        self.rng = np.random.default_rng(seed)
        self.sigma = math.sqrt(math.log1p(spread**2))
        self.version = 0
        self.taken: list[tuple[float, float, float]] = []
        for _ in range(learning.actors):
            self.world.process(self.actor())
        self.world.process(self.learner())

    def actor(self) -> Events:
        """Make one fragment after the other; wait while all places for finished ones are taken."""
        waiting = simpy.Resource(self.world, self.learning.queue_fragments)
        # Actors do not begin in step with each other.
        yield self.world.timeout(float(self.rng.uniform(0, self.learning.fragment_s)))
        while True:
            version = self.version
            factor = float(self.rng.lognormal(-(self.sigma**2) / 2, self.sigma))
            yield self.world.timeout(self.learning.fragment_s * factor)
            ready = self.world.now
            place = waiting.request()
            yield place
            yield self.queue.put((version, ready, waiting, place))

    def learner(self) -> Events:
        """Take a batch, learn, publish the next version."""
        while True:
            versions, ready = [], []
            for _ in range(self.learning.batch_fragments):
                version, at, waiting, place = yield self.queue.get()
                waiting.release(place)
                versions.append(version)
                ready.append(at)
            lag = self.version - float(np.mean(versions))
            self.taken.append((self.world.now, lag, self.world.now - float(np.mean(ready))))
            yield self.world.timeout(self.learning.update_s)
            self.version += 1
