"""A stage whose work, and whose error, is in another process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import hotloop


def decode_frame(number: int) -> int:
    raise KeyError(f"frame {number}")


def make() -> hotloop.Loop:
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    decode = hotloop.stage("decode", lambda: pool.submit(decode_frame, 12).result())
    return hotloop.Loop(body=decode)
