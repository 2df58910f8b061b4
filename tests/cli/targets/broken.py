"""Loops with one fault each."""

import sys
from pathlib import Path

from loops import spin
from sign import Sign

import hotloop


def no_units() -> hotloop.Loop:
    return hotloop.Loop(body=lambda: None, unit="env steps")


def nan_units() -> hotloop.Loop:
    return hotloop.Loop(body=lambda: float("nan"))


def word_units() -> hotloop.Loop:
    return hotloop.Loop(body=lambda: "many")


def ends_early() -> hotloop.Loop:
    batches = iter([1] * 5)
    return hotloop.Loop(body=lambda: next(batches), name="five batches")


def read_shard() -> int:
    raise ValueError("shard 7 is empty")


def fails_in_a_stage() -> hotloop.Loop:
    read = hotloop.stage("read", read_shard)

    def close() -> None:
        Path("closed").touch()

    return hotloop.Loop(body=lambda: read(), close=close)


def fails_midway() -> hotloop.Loop:
    sign = Sign()

    def iterate() -> int:
        spin(3000)
        if sign.look():
            raise ValueError("shard 7 is empty")
        return 1

    return hotloop.Loop(body=iterate)


def exits_midway() -> hotloop.Loop:
    sign = Sign()

    def iterate() -> int:
        spin(3000)
        if sign.look():
            sys.exit(0)
        return 1

    return hotloop.Loop(body=iterate)


def fails_when_made() -> hotloop.Loop:
    raise FileNotFoundError("no data in ./data")


def a_number() -> int:
    return 3


not_a_function = 3
