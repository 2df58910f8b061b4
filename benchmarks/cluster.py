"""How many of a cluster's steps per second arrive at its head, as nodes grow and steps shorten?

Repeats the table that was published for Tianshou's RayVectorEnv where its redesign was asked for
(nodes of 48 cores, steps of 1 s to 1 ms) on simulated nodes: one actor whose vector env lets a step
last for all its 48 envs at once stands for 48 cores that step in parallel. The head has a policy
that costs nothing, so what is lost is what the engine costs. Three ways:

- head, step: the policy is at the head, `RayVectorEnv.step` waits for all nodes;
- head, send and recv: the same, but each node goes on as soon as its own actions are there;
- fragments: `FragmentCollector` on Ray, with the policy on the nodes.

How a step keeps its time: `hotloop.rollout.simulated_nodes`. The actors are spread over several
raylets of this machine. A few cells are measured first; from them the cost model of `hotloop plan`
forecasts the others, and the forecasts are written down before those are measured.

    pip install 'hotloop[ray,tianshou]'
    python benchmarks/cluster.py --quick
    python benchmarks/cluster.py --markdown docs/benchmarks/cluster.md

`--raw FILE` keeps what was measured, and a run that finds it there measures only what is missing.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from gymnasium import spaces

from cluster_forecasts import (
    BUSY,
    CORES,
    FITTED,
    FRAGMENT_STEPS,
    FRAGMENTS,
    SEND,
    STEP,
    Cell,
    Cells,
    Forecast,
    forecast_page,
    forecasts,
)
from cluster_plot import plot
from hotloop.envs.ray import RayVectorEnv
from hotloop.envs.ray.local_cluster import local_cluster
from hotloop.plan.points import read_points
from hotloop.rollout import FragmentCollector
from hotloop.rollout.simulated_nodes import (
    FixedActions,
    Pace,
    rate_in_fragments,
    rate_in_turn,
    rate_of_steps,
)
from hotloop.testing.synthetic import SyntheticEnv, SyntheticSettings, SyntheticVectorEnv
from tables import table, write_page

NODES = (2, 4, 8, 16, 32)
DURATIONS_S = (1.0, 0.1, 0.01, 0.001, 0.0)  # an action is a place in here; 0 measures transport
# Published for Tianshou's RayVectorEnv: SPS by nodes and duration.
PUBLISHED = {
    (point.cell.nodes, point.cell.step_s): point.sps
    for point in read_points(Path(__file__).parents[1] / "docs/benchmarks/cluster_published.csv")
}
THEIRS, TRANSPORT = "published", "transport"
TIANSHOU, OURS = "Tianshou, an actor for each env", "hotloop, 2 actors"
PEERS = (TIANSHOU, OURS)
# Efficiency wanted of fragments, and up to how many nodes.
TARGETS = {1.0: (0.98, 32), 0.1: (0.97, 32), 0.01: (0.95, 32), 0.001: (0.80, 8)}
TRANSPORTED_PER_S = 1_000_000
SETTINGS = SyntheticSettings(
    obs_bytes=64, episode_steps=(500, 1500), action_space=spaces.Discrete(len(DURATIONS_S))
)


def efficiency(cell: Cell) -> float:
    """Share of the ideal; the peer's cells count envs, not nodes."""
    width = 1 if cell.way in PEERS else CORES
    return cell.sps * cell.step_s / (cell.nodes * width)


class Measured:
    """The cells so far, in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.cells: list[Cell] = []
        self.forecasts: list[Forecast] = []
        if path is not None and path.exists():
            saved = json.loads(path.read_text())
            self.cells = [Cell(**cell) for cell in saved["cells"]]
            self.forecasts = [Forecast(**forecast) for forecast in saved["forecasts"]]

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
            f"{efficiency(cell):.1%}, cores busy {cell.busy:.0%}",
            flush=True,
        )
        self.write()

    def note(self, forecasts: list[Forecast]) -> None:
        """Write forecasts down, of cells that have not been measured; those of before stay."""
        noted = {(f.way, f.nodes, f.step_s) for f in self.forecasts}
        for found in forecasts:
            key = (found.way, found.nodes, found.step_s)
            if key not in noted and not self.has(*key):
                self.forecasts.append(found)
                print(f"forecast: {found}", flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            saved = {"cells": self.cells, "forecasts": self.forecasts}
            self.path.write_text(
                json.dumps({name: [asdict(each) for each in of] for name, of in saved.items()})
            )


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
        outcome = self._pace(DURATIONS_S[int(action)], lambda: whole(int(action)))
        if outcome[2] or outcome[3]:
            self.reset()  # the peer leaves that to its caller
        return outcome


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
    with local_cluster(max(counts), chosen.raylets):
        for nodes in sorted({nodes for nodes, _ in FITTED} & set(counts)):
            measure(measured, nodes, cell_s, FITTED)
        measured.note(forecasts(measured.cells, counts))
        for nodes in counts:
            measure(measured, nodes, cell_s)
        measured.take(TRANSPORT, 2, 0.0, partial(transported, cell_s))
        measure_peer(measured, 4 if chosen.quick else 16, cell_s)
    cells = measured.cells
    parts = page(cells, chosen.raylets) + forecast_page(measured.forecasts, cells)
    if chosen.markdown:
        chosen.markdown.with_suffix(".svg").write_text(plot(series(cells), NODES))
    write_page(
        chosen.markdown,
        "A cluster (the nodes are simulated, the network is not there)",
        parts,
        "benchmarks/cluster.py",
    )


# --- one row of nodes ----------------------------------------------------------------------------


def measure(measured: Measured, nodes: int, cell_s: float, only: Cells | None = None) -> None:
    """Measure the ways with so many nodes; only: these cells (nodes, step_s), else all."""
    durations = [d for d in DURATIONS_S[:-1] if only is None or (nodes, d) in only]
    if not all(measured.has(way, nodes, step_s) for way in (STEP, SEND) for step_s in durations):
        envs = RayVectorEnv([Node] * nodes, num_workers=nodes, batch_size=CORES)
        envs.reset(seed=0)
        for step_s in durations:
            actions = actions_for(step_s, envs.num_envs)
            work = partial(rate_of_steps, envs, envs.num_envs, actions, step_s, cell_s)
            measured.take(STEP, nodes, step_s, work)
            measured.take(SEND, nodes, step_s, partial(rate_in_turn, envs, actions, nodes, cell_s))
        envs.close()
    for steps, suited in FRAGMENT_STEPS.items():
        wanted = [d for d in suited if d in durations]
        if all(measured.has(FRAGMENTS, nodes, step_s) for step_s in wanted):
            continue
        with collector(nodes, steps, Node) as fragments:
            for step_s in wanted:
                policy = FixedActions(actions_for(step_s, CORES))
                work = partial(rate_in_fragments, fragments, policy, nodes, cell_s)
                measured.take(FRAGMENTS, nodes, step_s, work)


def actions_for(step_s: float, num_envs: int) -> Any:
    """For every env the same step duration."""
    return np.full(num_envs, DURATIONS_S.index(step_s))


def collector(
    nodes: int, steps: int, make_envs: Callable[[], Any], num_envs: int = CORES
) -> FragmentCollector:
    return FragmentCollector(
        make_envs,
        FixedActions(actions_for(0.0, num_envs)),
        fragment_steps=steps,
        num_workers=nodes,
        backend="ray",
        double_buffer=False,
    )


def transported(cell_s: float) -> float:
    """Transitions per second that arrive from two nodes whose steps take no time."""
    envs = 1024
    with collector(2, 100, partial(Node, envs), envs) as fragments:
        return rate_in_fragments(fragments, FixedActions(actions_for(0.0, envs)), 2, cell_s)


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
            actions = actions_for(step_s, num_envs)
            work = partial(rate_of_steps, envs, num_envs, actions, step_s, cell_s)
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
    for step_s in DURATIONS_S[:-1]:
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
    for nodes in NODES:
        ideal = nodes * CORES / step_s
        row = [str(nodes), f"{ideal:,.0f}"]
        for way in (STEP, SEND, FRAGMENTS):
            cell = found.get((way, nodes))
            row.append(shown(cell.sps, efficiency(cell), cell.busy) if cell else "")
        theirs = PUBLISHED[nodes, step_s]
        row.append(shown(theirs, theirs / ideal))
        reached = found.get((FRAGMENTS, nodes))
        if reached is not None and nodes <= most:
            row.append(f"{wanted:.0%}: {verdict(round(efficiency(reached), 3) >= wanted)}")
        listed.append(row + [""] * (7 - len(row)))
    header = ["nodes", "ideal SPS", STEP, SEND, FRAGMENTS, THEIRS, "target of fragments"]
    return header, listed


def shown(sps: float, efficiency: float, busy: float = 0.0) -> str:
    return f"{sps:,.0f} ({efficiency:.1%}){'*' if busy >= BUSY else ''}"


def peer_rows(peers: list[Cell]) -> list[list[str]]:
    return [
        [cell.way, f"{cell.step_s:g}", shown(cell.sps, efficiency(cell), cell.busy)]
        for cell in peers
    ]


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def series(cells: list[Cell]) -> dict[float, dict[str, list[float | None]]]:
    """Efficiency at NODES, by step duration and way."""
    drawn: dict[float, dict[str, list[float | None]]] = {}
    for step_s in DURATIONS_S[:-1]:
        found = {(cell.way, cell.nodes): cell for cell in cells if cell.step_s == step_s}
        lines: dict[str, list[float | None]] = {
            way: [efficiency(found[way, n]) if (way, n) in found else None for n in NODES]
            for way in (FRAGMENTS, SEND, STEP)
        }
        lines[THEIRS] = [PUBLISHED[n, step_s] * step_s / (n * CORES) for n in NODES]
        drawn[step_s] = lines
    return drawn


if __name__ == "__main__":
    main()
