"""Does learning speed up with the nodes that act for it, and does it outlive them?

IMPALA and Ape-X learn from actors on real Ray clusters of 1 to 8 nodes (several raylets of this
machine), an actor a node, each with an env whose step lasts 10 ms. What is lost against n times one
node is what the learner, Ray and the scheduler cost. Then a cluster of two nodes loses one in the
middle of a training, and gets another.

Then as many simulated nodes of 48 cores as it takes until the learner or the machine is busy, each
an actor whose 48 envs step in the same 10 ms.

    pip install 'hotloop[ray]'
    python benchmarks/learner_nodes.py --markdown docs/benchmarks/learner_nodes.md

Every measurement is a line of the raw results; a run that was broken off goes on.
"""

import argparse
import gc
import os
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

from hotloop.learn.actors import AsynchronousLearner
from hotloop.learn.algorithms import learner_type
from league.process import append, read
from tables import table, write_page

RESULTS = Path("docs/benchmarks/learner_nodes.jsonl")
VERSION = "1"
NODES = (1, 2, 4, 8)
LEARNERS = ("impala", "apex")
ENV = "sleeping:Sleeping-v0"
SIMULATED = "sleeping:Node-v0"
CORES = 48  # of a simulated node
RAYLETS = 4  # that simulated nodes are spread over
SIMULATED_NODES = (1, 2, 4, 8, 16, 32)
BUSY = 0.9
STEPS_PER_S = 100.0  # of one env
FRAGMENT_STEPS = 25
WANTED = 0.95
PEERS = Path(__file__).parent / "peers"
SETTLE_S, MEASURE_S = 3.0, 20.0


def cluster_of(nodes: int, num_cpus: int = 1) -> Cluster:
    """A head without cores, and nodes of so many.

    Without Ray's own metrics, whose agents would take a good part of the two cores here, one for
    each node.
    """
    os.environ["RAY_enable_metrics_collection"] = "0"  # noqa: SIM112 - so Ray reads it
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes):
        cluster.add_node(num_cpus=num_cpus)
    cluster.wait_for_nodes()
    paths = [str(PEERS), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": variables})
    return cluster


def end(cluster: Cluster) -> None:
    ray.shutdown()
    cluster.shutdown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def learner_of(algorithm: str, nodes: int, env_id: str = ENV, cores: int = 1) -> Any:
    kind = learner_type(algorithm)
    # A batch of many nodes: of one fragment each, updates would outrun the fragments under way, and
    # more of them would be older than `max_lag`, and dropped, the more nodes there are.
    made = kind.settings_type(
        env_id=env_id,
        backend="ray",
        num_envs=cores * nodes,
        num_workers=nodes,
        batch_fragments=nodes if cores == 1 else max(1, nodes // 2),
        fragment_steps=FRAGMENT_STEPS,
    )
    return kind(made)  # type: ignore[call-arg]


def simulated(algorithm: str, nodes: int) -> dict[str, Any]:
    """As `scaling`, with nodes of many cores that are simulated."""
    raylets = min(nodes, RAYLETS)
    cluster = cluster_of(raylets, nodes // raylets)
    learner = learner_of(algorithm, nodes, SIMULATED, CORES)
    return {"what": "simulated", **measured(cluster, learner, algorithm, nodes, CORES * nodes)}


def scaling(algorithm: str, nodes: int) -> dict[str, Any]:
    """Env steps a second that were learned from, and how busy the learner and the machine were."""
    cluster = cluster_of(nodes)
    learner = learner_of(algorithm, nodes)
    return {"what": "scaling", **measured(cluster, learner, algorithm, nodes, nodes)}


def measured(
    cluster: Cluster, learner: Any, algorithm: str, nodes: int, envs: int
) -> dict[str, Any]:
    """Measure a learner on a cluster, and end both."""
    try:
        begun: set[int] = set()
        while len(begun) < envs:  # every actor has sent a fragment
            begun |= iterate(learner)
        run(learner, SETTLE_S)
        psutil.cpu_percent()
        steps, used = learner.progress.env_steps, time.process_time()
        seconds = run(learner, MEASURE_S)
        return {
            "algorithm": algorithm,
            "nodes": nodes,
            "sps": (learner.progress.env_steps - steps) / seconds,
            "learner_busy": (time.process_time() - used) / seconds,
            "machine_busy": psutil.cpu_percent() / 100,
            "lag_mean": learner.figures()["lag_mean"],
            "dropped": learner.figures()["fragments_dropped"],
        }
    finally:
        learner.close()
        end(cluster)


def iterate(learner: AsynchronousLearner) -> set[int]:
    """One iteration; returns the envs whose steps it learned from."""
    taken: list[Any] = []
    take = learner.actors.take
    learner.actors.take = lambda n: taken.extend(take(n)) or taken  # type: ignore[method-assign]
    learner.iterate()
    learner.actors.take = take  # type: ignore[method-assign]
    return {int(env) for fragment in taken for env in fragment.env_ids}


def run(learner: AsynchronousLearner, seconds: float) -> float:
    """Iterate for so long; returns how long it took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        learner.iterate()
    return time.perf_counter() - begin


def losing_a_node(algorithm: str) -> dict[str, Any]:
    """Env steps a second with two nodes, with one after the other has gone, and with a new one."""
    cluster = cluster_of(2)
    learner = learner_of(algorithm, 2)
    rates: dict[str, float] = {}

    def measured(name: str, settle_s: float) -> None:
        run(learner, settle_s)
        steps = learner.progress.env_steps
        seconds = run(learner, 10.0)
        rates[name] = (learner.progress.env_steps - steps) / seconds

    try:
        begun: set[int] = set()
        while len(begun) < 2:
            begun |= iterate(learner)
        measured("before", SETTLE_S)
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        measured("without it", SETTLE_S)
        cluster.add_node(num_cpus=1)
        measured("with another", 20.0)
        return {
            "what": "losing a node",
            "algorithm": algorithm,
            **rates,
            "restarts": learner.settings.restarts - learner.actors.collector.restarts_left,
        }
    finally:
        learner.close()
        end(cluster)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    options = parser.parse_args()
    sys.path.append(str(PEERS))  # the env's module, here as in the actors
    begin = time.monotonic()
    for repeat in range(options.repeats):
        for algorithm in LEARNERS:
            for nodes in (1, 8, 4, 2):
                if len(found("scaling", algorithm, nodes)) <= repeat:
                    if time.monotonic() - begin > 60 * options.minutes:
                        break
                    note(scaling(algorithm, nodes))
            if not found("losing a node", algorithm):
                note(losing_a_node(algorithm))
            for nodes in SIMULATED_NODES:
                if not found("simulated", algorithm, nodes):
                    if time.monotonic() - begin > 60 * options.minutes or is_busy(algorithm):
                        break
                    note(simulated(algorithm, nodes))
    write_page(
        options.markdown,
        "Learners on clusters of several nodes",
        page(),
        "benchmarks/learner_nodes.py",
    )


def note(line: dict[str, Any]) -> None:
    append(RESULTS, VERSION, line)
    print(line, flush=True)


def found(what: str, algorithm: str, nodes: int | None = None) -> list[dict[str, Any]]:
    return [
        line
        for line in read(RESULTS)
        if (line["what"], line["algorithm"], line.get("nodes")) == (what, algorithm, nodes)
    ]


def is_busy(algorithm: str) -> bool:
    """Whether the learner or the machine was busy on the largest simulated cluster so far."""
    return any(
        bound(line) for nodes in SIMULATED_NODES for line in found("simulated", algorithm, nodes)
    )


def bound(line: dict[str, Any]) -> str:
    """What is busy, and so holds the rate; empty where nothing is."""
    if line["learner_busy"] >= BUSY:
        return "the learner"
    return "the machine" if line["machine_busy"] >= BUSY else ""


def page() -> list[str]:
    parts = [
        f"An actor a node, with an env whose step lasts {1e3 / STEPS_PER_S:g} ms; the nodes are "
        "raylets of this one machine, so that the network costs nothing and the learner, Ray and "
        f"all actors share two cores. Fragments of {FRAGMENT_STEPS} steps. Wanted: at least "
        f"{WANTED} of n times what one node brings. Medians of all runs.",
    ]
    for algorithm in LEARNERS:
        rows = []
        one = [line["sps"] for line in found("scaling", algorithm, 1)]
        for nodes in NODES:
            lines = found("scaling", algorithm, nodes)
            if not lines or not one:
                continue
            sps = median(line["sps"] for line in lines)
            share = sps / (nodes * median(one))
            rows.append(
                [
                    str(nodes),
                    str(len(lines)),
                    f"{sps:,.1f}",
                    f"{share:.3f}",
                    "reached" if share >= WANTED else "missed",
                    f"{median(line['learner_busy'] for line in lines):.0%}",
                    f"{median(line['machine_busy'] for line in lines):.0%}",
                    f"{median(line['lag_mean'] for line in lines):.1f}",
                ]
            )
        header = ["nodes", "runs", "env steps/s", "of n times one", "", "learner busy"]
        parts += [f"## {algorithm}", table([*header, "machine busy", "mean lag"], rows)]
    parts += [
        f"## Simulated nodes of {CORES} cores",
        f"Until the learner or this machine is at least {BUSY:.0%} busy: that holds the rate then, "
        "and not the cluster.",
    ]
    for algorithm in LEARNERS:
        lines = [line for n in SIMULATED_NODES for line in found("simulated", algorithm, n)[-1:]]
        if lines:
            parts += [f"### {algorithm}", simulated_table(lines)]
    rows = [
        [
            algorithm,
            *(f"{line[name]:,.1f}" for name in ("before", "without it", "with another")),
            str(line["restarts"]),
        ]
        for algorithm in LEARNERS
        for line in found("losing a node", algorithm)
    ]
    header = ["learner", "two nodes", "one is removed", "another has joined", "actors replaced"]
    return [*parts, "## A node goes, and one comes", table(header, rows)]


def simulated_table(lines: list[dict[str, Any]]) -> str:
    header = ["nodes", "env steps/s", "of what the envs could make", "learner busy"]
    return table(
        [*header, "machine busy", "mean lag", "dropped", "held by"],
        [
            [
                str(line["nodes"]),
                f"{line['sps']:,.0f}",
                f"{line['sps'] / (STEPS_PER_S * CORES * line['nodes']):.3f}",
                f"{line['learner_busy']:.0%}",
                f"{line['machine_busy']:.0%}",
                f"{line['lag_mean']:.1f}",
                f"{line['dropped']:,.0f}",
                bound(line) or "the envs",
            ]
            for line in lines
        ],
    )


if __name__ == "__main__":
    main()
