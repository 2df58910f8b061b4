"""How many of a cluster's steps per second arrive at its head, as nodes grow and steps shorten?

Repeats the table that was published for Tianshou's RayVectorEnv where its redesign was asked for
(nodes of 48 cores, steps of 1 s to 1 ms) on simulated nodes: one actor whose vector env lets a step
last for all its 48 envs at once stands for 48 cores that step in parallel. The head has a policy
that costs nothing, so what is lost is what the engine costs. Three ways:

- head, step: the policy is at the head, `RayVectorEnv.step` waits for all nodes;
- head, send and recv: the same, but each node goes on as soon as its own actions are there;
- fragments: `FragmentCollector` on Ray, with the policy on the nodes.

A step ends when its time is over, whatever simulating it cost this machine. Where it ends late, the
next one is shortened by as much, but by one millisecond at most: what a sleep overshoots does not
count against the engine, and a machine too busy to keep pace does not make up for it later. The
actors are spread over several raylets of this machine.

    pip install 'hotloop[ray,tianshou]'
    python benchmarks/cluster.py --quick
    python benchmarks/cluster.py --markdown docs/benchmarks/cluster.md

`--raw FILE` keeps what was measured, and a run that finds it there measures only what is missing.
"""

import argparse
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import ray
from gymnasium import spaces
from ray.cluster_utils import Cluster

from cluster_plot import plot
from hotloop.envs.ray import RayVectorEnv
from hotloop.rollout import FragmentCollector
from hotloop.testing.synthetic import SyntheticEnv, SyntheticSettings, SyntheticVectorEnv
from tables import table, write_page

CORES = 48  # of a node
NODES = (2, 4, 8, 16, 32)
DURATIONS_S = (1.0, 0.1, 0.01, 0.001, 0.0)  # an action is a place in here; 0 measures transport
# Published for Tianshou's RayVectorEnv: SPS at NODES, by duration.
PUBLISHED = {
    1.0: (91.97, 181.92, 351.10, 660.87, 1_191.83),
    0.1: (680.66, 1_285.94, 2_153.68, 3_118.94, 4_040.86),
    0.01: (3_130.63, 3_962.63, 4_348.30, 4_210.96, 4_303.75),
    0.001: (3_941.47, 4_089.34, 4_226.37, 4_113.67, 4_267.77),
}
STEP, SEND, FRAGMENTS, THEIRS = "head, step", "head, send and recv", "fragments", "published"
TRANSPORT, TIANSHOU, OURS = "transport", "Tianshou, an actor for each env", "hotloop, 2 actors"
PEERS = (TIANSHOU, OURS)
# Steps of a fragment, and the durations they suit: fragments of 0.25 to 4 s.
FRAGMENT_STEPS = {4: (1.0, 0.1), 250: (0.01, 0.001)}
# Efficiency wanted of fragments, and up to how many nodes.
TARGETS = {1.0: (0.98, 32), 0.1: (0.97, 32), 0.01: (0.95, 32), 0.001: (0.80, 8)}
TRANSPORTED_PER_S = 1_000_000
SETTINGS = SyntheticSettings(
    obs_bytes=64, episode_steps=(500, 1500), action_space=spaces.Discrete(len(DURATIONS_S))
)
MOST_LATE_S = 0.001
BUSY = 0.9  # of this machine's cores: beyond, they and not the engine set the pace


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    way: str
    nodes: int  # envs, beside the peer
    step_s: float
    sps: float
    busy: float  # share of this machine's cores, 0 to 1

    @property
    def efficiency(self) -> float:
        width = 1 if self.way in PEERS else CORES
        return self.sps * self.step_s / (self.nodes * width)


class Measured:
    """The cells so far, in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.cells: list[Cell] = []
        if path is not None and path.exists():
            self.cells = [Cell(**cell) for cell in json.loads(path.read_text())]

    def has(self, way: str, nodes: int, step_s: float) -> bool:
        return (way, nodes, step_s) in [(cell.way, cell.nodes, cell.step_s) for cell in self.cells]

    def take(self, way: str, nodes: int, step_s: float, work: Callable[[], float]) -> None:
        """Measure a cell, unless it is there."""
        if self.has(way, nodes, step_s):
            return
        psutil.cpu_percent()
        cell = Cell(way, nodes, step_s, work(), psutil.cpu_percent() / 100)
        self.cells.append(cell)
        print(
            f"{cell.way}, {cell.nodes} at {cell.step_s:g} s: {cell.sps:,.0f} SPS, "
            f"{cell.efficiency:.1%}, cores busy {cell.busy:.0%}",
            flush=True,
        )
        if self.path is not None:
            self.path.write_text(json.dumps([dataclasses.asdict(cell) for cell in self.cells]))


class Pace:
    """Lets steps last as long as they should; what one is late, the next makes up for."""

    def __init__(self) -> None:
        self._late_s = 0.0

    def __call__(self, step_s: float, step: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        outcome = step()
        if step_s:
            end = start + step_s - self._late_s
            time.sleep(max(0.0, end - time.perf_counter()))
            self._late_s = min(time.perf_counter() - end, MOST_LATE_S)
        return outcome


class Node(SyntheticVectorEnv):
    """48 cores; the action says how long a step lasts, so that an actor serves all durations."""

    def __init__(self, envs: int = CORES) -> None:
        super().__init__(envs, SETTINGS, autoreset_mode="SameStep")
        self._pace = Pace()

    def step(self, actions: Any) -> Any:
        whole = super().step
        return self._pace(DURATIONS_S[int(actions[0])], lambda: whole(actions))


class Core(SyntheticEnv):
    """One core, for the peer that has an actor for each."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self._pace = Pace()

    def step(self, action: Any) -> Any:
        whole = super().step
        return self._pace(DURATIONS_S[int(action)], lambda: whole(int(action)))


class Constant:
    """The policy: for every env the same step duration."""

    def __init__(self, step_s: float) -> None:
        self.action = DURATIONS_S.index(step_s)

    def __call__(self, obs: Any) -> Any:
        return np.full(len(obs), self.action)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--quick", action="store_true", help="two and four nodes, short cells")
    options.add_argument("--raylets", type=int, default=4)
    options.add_argument("--raw", type=Path)
    chosen = options.parse_args()
    warnings.simplefilter("ignore")  # Ray's own, about its next version
    counts = NODES[:2] if chosen.quick else NODES
    cell_s = 0.5 if chosen.quick else 3.0
    measured = Measured(chosen.raw)
    cluster = start_cluster(chosen.raylets, max(counts))
    try:
        for nodes in counts:
            measure(measured, nodes, cell_s)
        measured.take(TRANSPORT, 2, 0.0, partial(transported, cell_s))
        measure_peer(measured, 4 if chosen.quick else 16, cell_s)
    finally:
        ray.shutdown()
        cluster.shutdown()
    cells = measured.cells
    parts = page(cells, chosen.raylets)
    if chosen.markdown:
        chosen.markdown.with_suffix(".svg").write_text(plot(series(cells), NODES))
    write_page(
        chosen.markdown,
        "A cluster (the nodes are simulated, the network is not there)",
        parts,
        "benchmarks/cluster.py",
    )


def start_cluster(raylets: int, nodes: int) -> Cluster:
    # Else Ray ends actors when other programs of this machine use its memory.
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(raylets):
        cluster.add_node(num_cpus=-(-nodes // raylets), wait=False, object_store_memory=2**29)
    cluster.wait_for_nodes()
    ray.init(cluster.address, log_to_driver=False)
    return cluster


# --- one row of nodes ----------------------------------------------------------------------------


def measure(measured: Measured, nodes: int, cell_s: float) -> None:
    durations = DURATIONS_S[:-1]
    if not all(measured.has(way, nodes, step_s) for way in (STEP, SEND) for step_s in durations):
        envs = RayVectorEnv([Node] * nodes, num_workers=nodes, batch_size=CORES)
        envs.reset(seed=0)
        for step_s in durations:
            measured.take(STEP, nodes, step_s, partial(steps_of_all, envs, step_s, cell_s))
            measured.take(SEND, nodes, step_s, partial(steps_in_turn, envs, step_s, cell_s))
        envs.close()
    for steps, durations in FRAGMENT_STEPS.items():
        if all(measured.has(FRAGMENTS, nodes, step_s) for step_s in durations):
            continue
        with collector(nodes, steps, Node) as fragments:
            for step_s in durations:
                work = partial(steps_in_fragments, fragments, nodes, step_s, cell_s)
                measured.take(FRAGMENTS, nodes, step_s, work)


def collector(nodes: int, steps: int, make_envs: Callable[[], Any]) -> FragmentCollector:
    return FragmentCollector(
        make_envs,
        Constant(0.0),
        fragment_steps=steps,
        num_workers=nodes,
        backend="ray",
        double_buffer=False,
    )


def steps_of_all(envs: Any, step_s: float, cell_s: float, num_envs: int = 0) -> float:
    num_envs = num_envs or envs.num_envs
    actions = np.full(num_envs, DURATIONS_S.index(step_s))
    for _ in range(1 if step_s == 1 else 3):
        envs.step(actions)
    steps, start = 0, time.perf_counter()
    while steps < 5 or time.perf_counter() - start < cell_s:
        envs.step(actions)
        steps += 1
    return steps * num_envs / (time.perf_counter() - start)


def steps_in_turn(envs: RayVectorEnv, step_s: float, cell_s: float) -> float:
    """Env steps per second where every node is sent on as soon as it is heard."""
    actions = np.full(envs.num_envs, DURATIONS_S.index(step_s))
    nodes = envs.num_workers
    envs.send(actions, np.arange(envs.num_envs))

    def turn() -> None:
        ids = envs.recv()[4]["env_id"]
        envs.send(actions[: len(ids)], ids)

    for _ in range(nodes):
        turn()
    batches, start = 0, time.perf_counter()
    while batches < 5 * nodes or time.perf_counter() - start < cell_s:
        for _ in range(nodes):
            turn()
        batches += nodes
    sps = batches * CORES / (time.perf_counter() - start)
    for _ in range(nodes):
        envs.recv()
    return sps


def steps_in_fragments(
    fragments: FragmentCollector, nodes: int, step_s: float, cell_s: float
) -> float:
    version = fragments.update(Constant(step_s))
    fresh: set[int] = set()
    while len(fresh) < nodes:  # those under way were begun with another duration
        (fragment,) = fragments.collect()
        if fragment.policy_version == version:
            fresh.add(int(fragment.env_ids[0]))
    for _ in range(3 * nodes):  # nor those that were done before, and only had to be fetched
        before = time.perf_counter()
        fragments.collect()
        if time.perf_counter() - before > 0.001:
            break
    rounds, transitions, start = 0, 0, time.perf_counter()
    while rounds < 2 or time.perf_counter() - start < cell_s:
        # Copied, so that no byte of what counts is still on its way.
        transitions += sum(fragment.copy().transitions for fragment in fragments.collect(nodes))
        rounds += 1
    return transitions / (time.perf_counter() - start)


def transported(cell_s: float) -> float:
    """Transitions per second that arrive from two nodes whose steps take no time."""
    with collector(2, 100, partial(Node, 1024)) as fragments:
        return steps_in_fragments(fragments, 2, 0.0, cell_s)


# --- the peer ------------------------------------------------------------------------------------


def measure_peer(measured: Measured, num_envs: int, cell_s: float) -> None:
    """The peer and hotloop, for as many envs as the peer can have actors here."""
    from tianshou.env import RayVectorEnv as TianshouRayVectorEnv

    makers: dict[str, Callable[[], Any]] = {
        TIANSHOU: lambda: TianshouRayVectorEnv([Core] * num_envs),
        OURS: lambda: RayVectorEnv([partial(Node, num_envs // 2)] * 2, num_workers=2),
    }
    for name, make in makers.items():
        if all(measured.has(name, num_envs, step_s) for step_s in DURATIONS_S[:-1]):
            continue
        envs = make()
        envs.reset()
        for step_s in DURATIONS_S[:-1]:
            work = partial(steps_of_all, envs, step_s, cell_s, num_envs)
            measured.take(name, num_envs, step_s, work)
        envs.close()


# --- the page ------------------------------------------------------------------------------------


def page(
    cells: list[Cell],
    raylets: int,
) -> list[str]:
    peers = [cell for cell in cells if cell.way in PEERS]
    (transport,) = [cell.sps for cell in cells if cell.way == TRANSPORT]
    parts = [
        f"Nodes of {CORES} cores are simulated: an actor's step lasts as long as one env's, for "
        f"all its {CORES} envs at once. The actors are spread over {raylets} Ray nodes of this one "
        f"machine. So what serialisation, scheduling and Ray's calls cost is measured, and what a "
        "network costs is not. Real nodes have a processor each, here all share this one's.",
        "SPS is env steps per second that arrived at the head. Efficiency is SPS over the ideal, "
        "cores / step duration. The published column is Tianshou's RayVectorEnv on real nodes "
        "(where its redesign was asked for), one actor for each env and one message for each step.",
        "![Efficiency against nodes](cluster.svg)",
    ]
    for step_s in PUBLISHED:
        parts += [f"## Steps of {step_s:g} s", table(*rows(step_s, cells))]
    parts += [
        f"*: at least {BUSY:.0%} of this machine's cores were busy, with these nodes and whatever "
        "else ran here. All nodes together have fewer cores than one real node, and where they are "
        "used up they set the pace, not the engine.",
        "## Transport",
        f"{transport:,.0f} transitions per second with observations of 64 bytes arrive at the "
        f"head, from two nodes whose steps take no time and which share the machine with it "
        f"(target {TRANSPORTED_PER_S:,}: {verdict(transport >= TRANSPORTED_PER_S)}).",
        "## The peer on this machine",
        f"Tianshou's RayVectorEnv with {peers[0].nodes} envs, and hotloop's with as many on two "
        "nodes, both with the policy at the head and waiting for all.",
        table(["engine", "step (s)", "SPS (efficiency)"], peer_rows(peers)),
    ]
    return parts


def rows(step_s: float, cells: list[Cell]) -> tuple[list[str], list[list[str]]]:
    found = {(cell.way, cell.nodes): cell for cell in cells if cell.step_s == step_s}
    wanted, most = TARGETS[step_s]
    listed = []
    for place, nodes in enumerate(NODES):
        ideal = nodes * CORES / step_s
        row = [str(nodes), f"{ideal:,.0f}"]
        for way in (STEP, SEND, FRAGMENTS):
            cell = found.get((way, nodes))
            row.append(shown(cell.sps, cell.efficiency, cell.busy) if cell else "")
        theirs = PUBLISHED[step_s][place]
        row.append(shown(theirs, theirs / ideal))
        reached = found.get((FRAGMENTS, nodes))
        if reached is not None and nodes <= most:
            row.append(f"{wanted:.0%}: {verdict(round(reached.efficiency, 3) >= wanted)}")
        listed.append(row + [""] * (7 - len(row)))
    header = ["nodes", "ideal SPS", STEP, SEND, FRAGMENTS, THEIRS, "target of fragments"]
    return header, listed


def shown(sps: float, efficiency: float, busy: float = 0.0) -> str:
    return f"{sps:,.0f} ({efficiency:.1%}){'*' if busy >= BUSY else ''}"


def peer_rows(peers: list[Cell]) -> list[list[str]]:
    return [
        [cell.way, f"{cell.step_s:g}", shown(cell.sps, cell.efficiency, cell.busy)]
        for cell in peers
    ]


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def series(cells: list[Cell]) -> dict[float, dict[str, list[float | None]]]:
    """Efficiency at NODES, by step duration and way."""
    drawn: dict[float, dict[str, list[float | None]]] = {}
    for step_s, published in PUBLISHED.items():
        found = {(cell.way, cell.nodes): cell for cell in cells if cell.step_s == step_s}
        lines: dict[str, list[float | None]] = {
            way: [found[way, n].efficiency if (way, n) in found else None for n in NODES]
            for way in (FRAGMENTS, SEND, STEP)
        }
        ideals = [nodes * CORES / step_s for nodes in NODES]
        lines[THEIRS] = [sps / ideal for sps, ideal in zip(published, ideals, strict=True)]
        drawn[step_s] = lines
    return drawn


if __name__ == "__main__":
    main()
