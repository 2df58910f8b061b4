"""Training on a cluster of several nodes: one goes, another joins, and it solves all the same."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("ray")

TESTS = str(Path(__file__).parents[1])
PYTHONPATH = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
TRAINS = textwrap.dedent(
    """
    import logging
    import ray
    from ray.cluster_utils import Cluster
    from hotloop.learn.algorithms import learner_type
    from hotloop.learn.training import train

    logging.basicConfig(level=logging.INFO)
    cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=0))
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env=dict(env_vars=dict(PYTHONPATH={python_path!r}, OMP_NUM_THREADS="1")),
    )
    done = []

    def change_the_cluster(point):
        if not done and point.env_steps > 10_000:
            cluster.remove_node(nodes[0], allow_graceful=False)
            done.append("removed")
        if len(done) == 1 and point.env_steps > 25_000:
            cluster.add_node(num_cpus=1)
            done.append("added")

    settings = learner_type({algorithm!r}).settings_type(
        backend="ray", num_workers=2, total_steps=400_000
    )
    training = train(settings, on_iteration=change_the_cluster)
    print(training.ended, *done, flush=True)
    ray.shutdown()
    cluster.shutdown()
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["impala", "apex"])
def test_a_node_goes_and_one_joins_and_training_solves(algorithm):
    code = TRAINS.format(python_path=PYTHONPATH, algorithm=algorithm)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert "solved removed added" in done.stdout, done.stdout + done.stderr
    assert "it died" in done.stderr
    assert "another takes its place" in done.stderr
