"""Shards in this process: the plain form of those in processes and on Ray.

A message is answered when it is waited for, so that a test can hold answers back or end a shard
with messages before it.
"""

from collections import deque

from hotloop.rollout.shard import Answered, Died, Shard


class PlainShardPool:
    """Answers each request in its turn; `kill` ends a shard as a signal would."""

    def __init__(self, settings):
        self.settings = settings
        self.shards, self.waiting, self.dead = {}, {}, []
        self.starts, self.most_waiting, self.closed = [], 0, False
        self.silent = set()  # shards that do not answer

    def start(self, shard):
        self.starts.append(shard)
        self.shards[shard] = Shard(self.settings)
        self.waiting[shard] = deque([None])

    def send(self, shard, requests):
        if shard in self.shards:
            self.waiting[shard].append(requests)
            self.most_waiting = max(self.most_waiting, len(self.waiting[shard]))

    def wait(self, timeout_s):
        events = [Died(shard, "killed by a test") for shard in self.dead]
        self.dead = []
        for shard, waiting in self.waiting.items():
            # What nobody waits for stays unanswered, as long as it may.
            for _ in range(0 if timeout_s == 0 or shard in self.silent else len(waiting)):
                requests = waiting.popleft()
                one = self.shards[shard]
                events.append(Answered(shard, one.answer(requests) if requests else one.begin()))
        return events

    def kill(self, shard):
        self.end(shard)
        self.dead.append(shard)

    def end(self, shard):
        self.shards.pop(shard, None)
        self.waiting.pop(shard, None)

    def close(self):
        self.closed = True
