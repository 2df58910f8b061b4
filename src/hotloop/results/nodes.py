"""Env steps per second of an env on simulated nodes of this machine, in three modes."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import psutil

from hotloop.errors import SettingError, expect_positive, expect_whole
from hotloop.loop.run import Run
from hotloop.plan.modes import BATCHED, FRAGMENTS, SEND, Cell
from hotloop.plan.points import Point
from hotloop.report.kind import Kind
from hotloop.report.nodes import NODES, Nodes
from hotloop.results.result import Ending, Result

MODES_MEASURED = (BATCHED, SEND, FRAGMENTS)
Observer = Callable[[float, str], None]  # how much is done, 0 to 1; what comes next


@dataclass(frozen=True)
class NodesSettings:
    """What is simulated, and how long each cell is measured."""

    nodes: tuple[int, ...]
    """Numbers of nodes."""
    step_s: tuple[float, ...]
    """Seconds of a step of an env."""
    cores_per_node: int = 48
    """Cores of a node, each with one env."""
    seconds: float = 3.0
    """For each cell in each mode, in s; at least a few steps."""

    def __post_init__(self) -> None:
        for nodes in self.nodes:
            expect_whole("simulate_nodes", nodes, 1, 1000)
        for step_s in self.step_s:
            expect_positive("step_s", step_s)
        expect_whole("cores_per_node", self.cores_per_node, 1, 10_000)
        expect_positive("seconds", self.seconds)
        if not self.nodes or not self.step_s:
            raise SettingError("simulate_nodes, step_s: expected at least one of each, got none")


class NodesResult(Result[Nodes]):
    """How many env steps arrive at the head of simulated nodes."""

    kind: ClassVar[Kind[Nodes]] = NODES


def measure_nodes(
    env_id: str, settings: NodesSettings, observer: Observer = lambda _share, _what: None
) -> Ending[NodesResult]:
    """Measure all cells; what was measured before an error or an interrupt stays.

    Raises: TargetError for an env that does not exist or cannot be made; WorkerError without Ray.
    """
    from hotloop.envs.backends import load_backend
    from hotloop.envs.make import make_vec

    load_backend("ray")
    make_vec(env_id, 1, backend="serial").close()  # refuses it before a cluster is started
    points: list[Point] = []
    error: BaseException | None = None
    try:
        _measure(env_id, settings, points, observer)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    run = Run(
        verb="nodes",
        target=env_id,
        settings=dataclasses.asdict(settings),
        facts={
            "points": [dataclasses.asdict(p.cell) | {"sps": p.sps, "busy": p.busy} for p in points]
        },
        complete=error is None,
    )
    return Ending(NodesResult(run), error)


def _measure(env_id: str, settings: NodesSettings, points: list[Point], observer: Observer) -> None:
    from hotloop.envs.ray.local_cluster import local_cluster

    places = list(product(sorted(settings.nodes), sorted(settings.step_s, reverse=True)))
    total = len(places) * len(MODES_MEASURED)
    observer(0.0, "starting Ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about its next version
        with local_cluster(max(settings.nodes)):
            for nodes, step_s in places:
                cell = Cell(nodes, settings.cores_per_node, step_s)
                measured = _Measured(env_id, cell, settings.seconds)
                for point in measured.points(lambda what: observer(len(points) / total, what)):
                    points.append(point)


@dataclass
class _Measured:
    """The measurements of one cell."""

    env_id: str
    cell: Cell
    seconds: float
    actions: Any = field(init=False)

    def points(self, observer: Callable[[str], None]) -> Iterator[Point]:
        """The points of all modes."""
        from hotloop.rollout.simulated_nodes import rate_in_turn, rate_of_steps

        nodes, step_s = self.cell.nodes, self.cell.step_s
        observer(f"{self.cell}")
        with self._head() as (envs, actions):
            steps = partial(rate_of_steps, envs, self.cell.cores, actions, step_s, self.seconds)
            yield self._point(BATCHED, steps)
            yield self._point(SEND, partial(rate_in_turn, envs, actions, nodes, self.seconds))
        yield self._point(FRAGMENTS, self._fragments)

    def _node(self) -> Callable[[], Any]:
        from hotloop.rollout.simulated_nodes import SimulatedNode

        return partial(SimulatedNode, self.env_id, self.cell.cores_per_node, self.cell.step_s)

    @contextmanager
    def _head(self) -> Iterator[tuple[Any, Any]]:
        """The nodes' envs with the policy at the head, and actions for all of them."""
        from hotloop.envs.ray import RayVectorEnv

        nodes, cores = self.cell.nodes, self.cell.cores_per_node
        envs = RayVectorEnv([self._node()] * nodes, num_workers=nodes, batch_size=cores)
        try:
            envs.reset(seed=0)
            envs.action_space.seed(0)
            yield envs, envs.action_space.sample()
        finally:
            envs.close()

    def _fragments(self) -> float:
        from hotloop.envs.make import make_vec
        from hotloop.rollout import FragmentCollector
        from hotloop.rollout.simulated_nodes import FixedActions, rate_in_fragments

        cell = self.cell
        one = make_vec(self.env_id, cell.cores_per_node, backend="serial")
        one.action_space.seed(0)
        policy = FixedActions(one.action_space.sample())
        one.close()
        with FragmentCollector(
            self._node(),
            policy,
            fragment_steps=cell.steps_per_fragment,
            num_workers=cell.nodes,
            backend="ray",
            double_buffer=False,
        ) as fragments:
            return rate_in_fragments(fragments, policy, cell.nodes, self.seconds)

    def _point(self, mode: str, work: Callable[[], float]) -> Point:
        psutil.cpu_percent()
        sps = work()
        cell = dataclasses.replace(self.cell, mode=mode)
        if mode == FRAGMENTS:
            cell = dataclasses.replace(cell, fragment_steps=cell.steps_per_fragment)
        return Point(cell, float(sps), float(np.clip(psutil.cpu_percent() / 100, 0.0, 1.0)))
