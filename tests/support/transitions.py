"""Transitions whose every part says their number."""

import numpy as np

from hotloop.rollout.replay import Transitions


def transitions(first, count):
    """Transitions whose every part says their number."""
    number = np.arange(first, first + count)
    obs = {"a": np.stack((number, -number), 1).astype(np.float32), "b": number.astype(np.uint8)}
    return Transitions(
        obs=obs,
        action=number % 5,
        reward=number.astype(np.float32),
        discount=(number / 1e6).astype(np.float32),
        next_obs={"a": obs["a"] + 1, "b": (number + 1).astype(np.uint8)},
    )


def expect_whole(drawn):
    """Compare every transition that was drawn with the one of its number."""
    expected = [transitions(int(n), 1) for n in drawn.number]
    for at, one in enumerate(expected):
        got = drawn.transitions
        assert got.obs["a"][at].tolist() == one.obs["a"][0].tolist()
        assert got.obs["b"][at] == one.obs["b"][0]
        assert got.next_obs["a"][at].tolist() == one.next_obs["a"][0].tolist()
        assert got.action[at] == one.action[0]
        assert got.reward[at] == one.reward[0]
        assert got.discount[at] == one.discount[0]
