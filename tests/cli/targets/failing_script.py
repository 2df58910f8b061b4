"""A script whose stage raises."""

import hotloop


def read_shard() -> int:
    raise ValueError("shard 7 is empty")


read = hotloop.stage("read", read_shard)
for _ in hotloop.iterations(range(10)):
    read()
