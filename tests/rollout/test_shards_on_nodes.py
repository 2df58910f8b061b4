"""A replay in shards on a cluster of several nodes, one of which goes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("ray")

TESTS = str(Path(__file__).parents[1])
PYTHONPATH = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
# Every node but the first has room for one shard. Answers of wide transitions stay on their node
# until they are fetched, and are lost with it; those of narrow ones come with the message.
LOSES = textwrap.dedent(
    """
    import logging
    import os
    import threading

    import numpy as np
    import ray
    from ray.cluster_utils import Cluster

    from hotloop.rollout.replay import Transitions
    from hotloop.rollout.shard import ShardSettings
    from hotloop.rollout.shard_pools import shard_pool
    from hotloop.rollout.shards import ShardedReplay

    logging.basicConfig(level=logging.INFO)
    GIB, WIDTH, CAPACITY, ADDED = 1 << 30, {width}, 300, 20
    cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, memory=1 << 20))
    nodes = [cluster.add_node(num_cpus=0, memory=GIB) for _ in range({nodes})]
    cluster.wait_for_nodes()
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env=dict(env_vars=dict(PYTHONPATH={python_path!r}, OMP_NUM_THREADS="1")),
    )
    settings = ShardSettings(CAPACITY, 0.6, int(0.6 * GIB))
    replay = ShardedReplay(shard_pool("ray", settings), 2, settings, prefetch=2, restarts=1)
    rng = np.random.default_rng(0)

    def turn():
        number = np.arange(replay.added, replay.added + ADDED)
        obs = np.repeat(number[:, None], WIDTH, 1).astype(np.float32)
        part = number.astype(np.float32)
        replay.add(Transitions(obs, number, part, part, obs + 1), np.ones(ADDED))
        drawn = replay.draw(32, rng, beta=0.4)
        assert (drawn.transitions.action == drawn.number).all()
        assert (drawn.transitions.obs == drawn.number[:, None]).all()
        assert (drawn.transitions.next_obs == drawn.number[:, None] + 1).all()
        replay.set_errors(drawn.number, np.ones(32))
        return drawn.number

    def node_of(shard):
        actor = replay._messages._pool._actors[shard]
        return ray.get(actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()))

    while replay.added < 2 * CAPACITY:
        turn()
    [goes] = [node for node in nodes if node.node_id == node_of(1)]
    removes = threading.Thread(
        target=cluster.remove_node, args=(goes,), kwargs=dict(allow_graceful=False)
    )
    removes.start()
    while replay.restarts_left:
        turn()
    removes.join()
    assert replay.lost == CAPACITY, replay.lost
    if {nodes} == 2:  # no room for it until a node joins
        for _ in range(5):
            turn()
        cluster.add_node(num_cpus=0, memory=GIB)
    late = [turn() for _ in range(4 * CAPACITY // ADDED)]
    assert node_of(1) != goes.node_id
    assert {{n % 2 for numbers in late for n in numbers.tolist()}} == {{0, 1}}
    assert len(replay) == 2 * CAPACITY, len(replay)
    saved = replay.state_dict()["transitions"][1]  # the actions, which are the numbers
    assert saved.tolist() == list(range(replay.added - 2 * CAPACITY, replay.added))
    print("every number is accounted for", flush=True)
    replay.close()
    ray.shutdown()
    cluster.shutdown()
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "width"), [(3, 20_000), (2, 4)])
def test_a_node_goes_and_its_shard_is_replaced_on_another(nodes, width):
    code = LOSES.format(python_path=PYTHONPATH, nodes=nodes, width=width)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=False
    )
    assert "every number is accounted for" in done.stdout, done.stdout + done.stderr
    assert "replay shard 1: it died" in done.stderr
    assert "300 transitions are lost with it, and an empty one takes its place" in done.stderr
