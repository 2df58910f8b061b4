"""Ray for the time of a measurement: started quietly where it does not run, ended afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from hotloop.envs.ray.cluster import start_ray


@contextmanager
def own_session() -> Iterator[None]:
    """Run Ray until the block ends; a Ray that runs already stays as it is.

    A cluster is joined only where `RAY_ADDRESS` names it: else Ray would join any that it finds on
    this machine, with the programs that use it. Ray's own lines would stand before the answer, so
    it says nothing.
    """
    if ray.is_initialized():
        yield
        return
    start_ray(os.environ.get("RAY_ADDRESS", "local"), quiet=True)
    try:
        yield
    finally:
        ray.shutdown()
