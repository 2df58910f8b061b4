"""Shards of a replay in processes of this machine; transitions go through shared memory."""

import os
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

from hotloop.data.array_connection import ArrayConnection
from hotloop.rollout.program import Program, end_all, serve_driver, wait_for_news
from hotloop.rollout.shard import Answer, Answered, Died, Event, Request, Shard, ShardSettings


class _Process(Program):
    """The driver's end of one shard."""

    def __init__(self) -> None:
        super().__init__(__name__, threads=1)
        self.arrays = ArrayConnection(self.connection, self.process.pid)

    def receive(self) -> Answer:
        """Return its next answer. Raises: EOFError or OSError for a dead shard."""
        answer: Answer = self.arrays.receive()
        return answer

    def ask(self, message: object) -> None:
        """Send a message; a dead shard is noticed where its answers are awaited."""
        try:
            self.arrays.send(message)
        except (BrokenPipeError, ConnectionResetError):
            pass


class ProcessShardPool:
    """The processes; `ShardedReplay` decides when they are started, asked and ended."""

    def __init__(self, settings: ShardSettings) -> None:
        self._settings = settings
        self._shards: dict[int, _Process] = {}
        # Before the interpreter waits for anything at its end, and when this is dropped.
        self._end = Finalize(self, end_all, args=(self._shards,), exitpriority=100)

    def start(self, shard: int) -> None:
        """Start an empty shard; its first answer says that it is there."""
        self._shards[shard] = _Process()
        self._shards[shard].ask(self._settings)

    def send(self, shard: int, requests: tuple[Request, ...]) -> None:
        """Send a message."""
        self._shards[shard].ask(requests)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Return the events of the shards that answer first; empty after the timeout."""
        events: list[Event] = []
        for shard in wait_for_news(self._shards, timeout_s):
            answers, is_dead = self._shards[shard].receive_all()
            events += [Answered(shard, answer) for answer in answers]
            if is_dead:
                events.append(Died(shard, self._shards.pop(shard).end()))
        return events

    def end(self, shard: int) -> None:
        """End a shard at once."""
        if shard in self._shards:
            self._shards.pop(shard).end()

    def close(self) -> None:
        """End all shards. Idempotent."""
        self._end()


# --- in the shard ------------------------------------------------------------------------------


def main() -> None:
    """The program that a shard's process runs."""
    serve_driver(_serve)


def _serve(connection: "Connection[Any, Any]") -> None:
    """Answer requests until the driver closes its end. Raises: EOFError, OSError then."""
    arrays = ArrayConnection(connection, os.getppid())
    shard = Shard(arrays.receive())
    arrays.send(shard.begin())
    while True:
        arrays.send(shard.answer(arrays.receive()))
