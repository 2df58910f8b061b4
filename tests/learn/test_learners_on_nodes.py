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
        if not done and point.env_steps > 2_000:
            cluster.remove_node(nodes[0], allow_graceful=False)
            done.append("removed")
        if len(done) == 1 and point.env_steps > 5_000:  # before it can be solved
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


HOLDS_SHARDS = textwrap.dedent(
    """
    import logging
    import math
    import ray
    from ray.cluster_utils import Cluster
    from hotloop.learn.apex import ApexSettings
    from hotloop.learn.training import Trainer

    logging.basicConfig(level=logging.INFO)
    MIB = 1 << 20
    # The actors fill the first node; the others hold a shard each, and one has room for another.
    cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=2, memory=1))
    nodes = [cluster.add_node(num_cpus=0, memory=2 * MIB) for _ in range(3)]
    cluster.wait_for_nodes()
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env=dict(env_vars=dict(PYTHONPATH={python_path!r}, OMP_NUM_THREADS="1")),
    )
    settings = ApexSettings(
        backend="ray", num_workers=2, replay_shards=2, replay_size=40_000, total_steps=60_000,
        evaluate_every=60_000, target_return=math.nan,
    )
    removed = []

    def remove_the_node_of_a_shard(point):
        if removed or point.env_steps < 20_000:
            return
        shard = trainer.learner.replay._messages._pool._actors[0]
        place = ray.get(
            shard.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        )
        [node] = [node for node in nodes if node.node_id == place]
        removed.append(trainer.learner.counts.optimizer_steps)
        cluster.remove_node(node, allow_graceful=False)

    with Trainer(settings) as trainer:
        trainer.run(remove_the_node_of_a_shard)
        training, learner = trainer.training(), trainer.learner
        assert learner.counts.optimizer_steps > 1.5 * removed[0], (learner.counts, removed)
        replay = learner.replay
        lost = int(training.standing.figures["transitions_lost"])
        assert lost == replay.lost > 0
        assert replay.restarts_left == settings.restarts - 1
        # With what the shard that replaced it holds: none is counted twice, and none is missing.
        assert sum(replay._given(shard) for shard in range(2)) == replay.added
        assert len(replay) == len(replay.state_dict()["priority"])
        print(training.ended, "lost", lost, flush=True)
    ray.shutdown()
    cluster.shutdown()
    """
)


@pytest.mark.slow
def test_the_node_of_a_replay_shard_goes_and_training_goes_on():
    code = HOLDS_SHARDS.format(python_path=PYTHONPATH)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=False
    )
    assert "steps lost" in done.stdout, done.stdout + done.stderr
    assert "replay shard 0: it died" in done.stderr
    assert "transitions are lost with it, and an empty one takes its place" in done.stderr
