"""Loops that do nothing useful and work, an iteration in well under a millisecond."""

import hotloop


def spin(turns: int) -> int:
    """Keep the processor busy."""
    total = 0
    for turn in range(turns):
        total += turn
    return total


def two_stages() -> hotloop.Loop:
    load = hotloop.stage("load", spin, effect="pure")
    train = hotloop.stage("train", spin, effect="pure")

    def iterate() -> int:
        load(6000)
        train(3000)
        return 10

    return hotloop.Loop(body=iterate, unit="samples", name="two stages")


def without_stages() -> hotloop.Loop:
    def iterate() -> int:
        spin(3000)
        return 1

    return hotloop.Loop(body=iterate)
