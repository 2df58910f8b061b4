"""Shards of a replay in Ray actors, on any node.

A shard asks for the memory that it will fill, and for no core: its processor time is short, and
actors that have taken all cores must not keep it from its place.
"""

import logging
from collections import deque
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayActorError

from hotloop.envs.ray.cluster import RAY, start_ray
from hotloop.rollout.shard import Answered, Died, Event, Request, Shard, ShardSettings

_LOG = logging.getLogger("hotloop")


def node_memory() -> list[float] | None:
    """The bytes that each living node of the cluster gives to actors; None where one is unknown."""
    if not ray.is_initialized():
        start_ray(None)
    found = [node["Resources"].get("memory") for node in RAY.nodes() if node["Alive"]]
    return None if not found or None in found else found


class RayShardPool:
    """The actors; `ShardedReplay` decides when they are started, asked and ended."""

    def __init__(self, settings: ShardSettings) -> None:
        self._settings = settings
        knows_memory = node_memory() is not None
        if not knows_memory:
            _LOG.warning(
                "replay shards: the cluster does not say how much memory each node has: whether a "
                "shard of %.1f GiB finds room on its node is not known",
                settings.nbytes / 2**30,
            )
        options: dict[str, Any] = {"memory": settings.nbytes} if knows_memory else {}
        options |= {"num_cpus": 0, "scheduling_strategy": "SPREAD", "max_restarts": 0}
        self._make: Any = ray.remote(**options)(Shard)
        self._actors: dict[int, Any] = {}
        self._refs: dict[int, deque[Any]] = {}  # of each shard, oldest first

    def start(self, shard: int) -> None:
        """Start an empty shard; its first answer says that it is there."""
        self._actors[shard] = actor = self._make.remote(self._settings)
        self._refs[shard] = deque([actor.begin.remote()])

    def send(self, shard: int, requests: tuple[Request, ...]) -> None:
        """Send a message."""
        if shard in self._actors:
            self._refs[shard].append(self._actors[shard].answer.remote(requests))

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the events of the shards that answer first; empty after the timeout."""
        shards = {ref: shard for shard, refs in self._refs.items() for ref in refs}
        if not shards:
            return []
        ready, others = ray.wait(list(shards), timeout=timeout_s)
        if ready and others:
            ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
        arrived = set(ready)
        events: list[Event] = []
        for shard in sorted({shards[ref] for ref in ready}):
            # The oldest first: a later one may be seen before it.
            while (refs := self._refs.get(shard)) and refs[0] in arrived:
                events.append(self._event_of(shard))
        return events

    def end(self, shard: int) -> None:
        """End a shard at once."""
        self._refs.pop(shard, None)
        if shard in self._actors:
            ray.kill(self._actors.pop(shard))

    def close(self) -> None:
        """End all shards. Idempotent."""
        for shard in list(self._actors) if ray.is_initialized() else ():
            self.end(shard)
        self._actors.clear()
        self._refs.clear()

    def _event_of(self, shard: int) -> Event:
        try:
            return Answered(shard, ray.get(self._refs[shard].popleft()))
        except (RayActorError, ObjectLostError) as error:
            self.end(shard)
            return Died(shard, " ".join(str(error).split()))
