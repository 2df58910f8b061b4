"""Messages whose arrays travel through shared memory: they arrive whole, and stay so."""

import os
from multiprocessing.connection import Pipe

import numpy as np
import pytest

from hotloop.data.array_connection import ArrayConnection


@pytest.fixture
def ends():
    """Both ends, in this process."""
    pipes = Pipe()
    yield [ArrayConnection(pipe, os.getpid()) for pipe in pipes]
    for pipe in pipes:
        pipe.close()


MESSAGES = (
    None,
    {"number": 3, "text": "a"},
    np.arange(5),
    (np.zeros((0, 3)), {"a": np.float32(2) * np.ones((4, 4), np.float32)}),
    [np.zeros(0), np.zeros((0, 2), np.uint8)],
    (np.arange(24).reshape(2, 3, 4)[:, ::2], np.arange(6).reshape(2, 3).T),
)


def test_messages_arrive_whole(ends):
    for message in (*MESSAGES, *reversed(MESSAGES)):
        ends[0].send(message)
        assert_equal(ends[1].receive(), message)


def test_what_is_kept_stays_as_it_was(ends):
    kept = []
    for k in range(30):
        ends[0].send(np.full(100 + 50 * (k % 7), k))
        kept.append(ends[1].receive())
        if k % 3:
            kept.pop(0)
        ends[1].send(None)
        ends[0].receive()
    for array in kept:
        assert len(set(array.tolist())) == 1


def test_memory_is_used_again(ends):
    for k in range(50):
        ends[0].send(np.full(1000, k))
        got = ends[1].receive()
        got += 1  # it may be changed
        del got
        ends[1].send(None)
        ends[0].receive()
    assert len(ends[0]._own) <= 2


def assert_equal(got, expected):
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
    elif isinstance(expected, (list, tuple)):
        assert type(got) is type(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, dict):
        assert_equal(list(got.items()), list(expected.items()))
    else:
        assert got == expected
