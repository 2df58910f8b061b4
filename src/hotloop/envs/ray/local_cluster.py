"""A Ray cluster of several nodes on this machine, for a measurement or a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.cluster_utils import Cluster

from hotloop.envs.ray.cluster import FULL_SHARE, RAY, environment

# Else Ray ends actors when other programs of this machine use its memory, and its metrics take a
# good part of the cores, an agent for each node.
_QUIET = {"RAY_memory_monitor_refresh_ms": "0", "RAY_enable_metrics_collection": "0"}
STORE_BYTES = 2**29  # of the object store of each node


@contextmanager
def local_cluster(cores: int, raylets: int = 4) -> Iterator[None]:
    """Start a head without cores and `raylets` nodes that have `cores` together, join them, and
    end them when the block ends. A core is what an actor asks for, and need not exist.
    """
    with environment({**_QUIET, **FULL_SHARE}):
        cluster: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        try:
            for _ in range(raylets):
                cluster.add_node(
                    num_cpus=-(-cores // raylets), wait=False, object_store_memory=STORE_BYTES
                )
            cluster.wait_for_nodes()
            RAY.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            yield
        finally:
            RAY.shutdown()
            cluster.shutdown()
