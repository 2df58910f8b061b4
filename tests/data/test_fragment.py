"""Fragments: one block of memory, whatever is in it; returns and lengths by hand."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.data import Fragment, FragmentSpec, Layout, SharedBlock, leaves
from hotloop.errors import ShapeError
from hotloop.loop.state import Snapshot
from support.often import examples

NESTED = Layout.of(
    spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3), np.uint8),
            "pair": spaces.Tuple((spaces.Discrete(9), spaces.Text(5))),
        }
    )
)
NUMBER = Layout(np.dtype(np.float32), ())


def nested_obs(k, width=2):
    return {
        "image": np.full((width, 2, 3), k, np.uint8),
        "pair": (np.full(width, k), tuple("a" * (k % 6) for _ in range(width))),
    }


def one(obs, b):
    return {"image": obs["image"][b], "pair": (obs["pair"][0][b], obs["pair"][1][b])}


def filled(buffer=None, spec=None):
    """3 steps of 2 envs; column 1 terminates in step 1 at observation 50."""
    spec = spec or FragmentSpec(
        steps=3,
        envs=2,
        obs=NESTED,
        action=Layout.of(spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)))),
        extras=(("log_prob", NUMBER),),
    )
    fragment = Fragment.empty(spec) if buffer is None else Fragment.in_buffer(buffer, spec)
    fragment.begin(nested_obs(0), version=4)
    fragment.env_ids[:] = [6, 7]
    for t in range(3):
        over = np.array([False, t == 1])
        fragment.write(
            t,
            action=(np.array([t, 1]), np.full((2, 2), t, np.float32)),
            reward=np.array([t, 10.0 * t]),
            terminated=over,
            truncated=np.zeros(2, bool),
            next_obs=nested_obs(t + 1),
            extras={"log_prob": np.array([-t, -1.0])},
        )
        if over[1]:
            fragment.end(t, 1, one(nested_obs(50), 1))
    fragment.tally(np.array([100.0, 200.0]), np.array([5, 6]))
    return fragment


def check(fragment):
    """What `filled` wrote, number by number."""
    assert fragment.obs["image"][:, 0, 0, 0].tolist() == [0, 1, 2]
    assert fragment.obs["pair"][1][:, 1].tolist() == ["", "a", "aa"]
    assert fragment.last_obs["pair"][0].tolist() == [3, 3]
    assert fragment.action[0].tolist() == [[0, 1], [1, 1], [2, 1]]
    assert fragment.action[1][2, 0].tolist() == [2, 2]
    assert fragment.reward.tolist() == [[0, 0], [1, 10], [2, 20]]
    assert fragment.terminated.tolist() == [[False, False], [False, True], [False, False]]
    assert not fragment.truncated.any()
    assert fragment.valid.all()
    assert fragment.extras["log_prob"][:, 0].tolist() == [0, -1, -2]
    assert (fragment.final_t.tolist(), fragment.final_b.tolist()) == ([1], [1])
    assert fragment.final_obs["image"].shape == (1, 2, 3)
    assert fragment.final_obs["pair"][0].tolist() == [50]
    assert fragment.final_obs["pair"][1].tolist() == ["aa"]
    arrived = fragment.next_obs(1)
    assert arrived["pair"][0].tolist() == [2, 50]
    assert arrived["pair"][1].tolist() == ["aa", "aa"]
    assert fragment.next_obs(0)["pair"][0].tolist() == [1, 1]
    assert fragment.next_obs(2)["pair"][0].tolist() == [3, 3]
    assert fragment.obs["pair"][0][2].tolist() == [2, 2]  # patched in a copy
    assert fragment.episode_returns.tolist() == [210]
    assert fragment.episode_lengths.tolist() == [8]
    assert (fragment.env_steps, fragment.transitions, fragment.episodes) == (6, 6, 1)
    assert fragment.policy_version == 4
    assert fragment.versions.tolist() == [4, 4, 4]
    assert fragment.env_ids.tolist() == [6, 7]


def test_holds_what_was_written():
    check(filled())


def test_is_written_over():
    fragment = filled()
    fragment.begin(nested_obs(9))
    assert fragment.episodes == 0
    filled_again = filled()
    check(filled_again)
    assert fragment.obs["image"][0].max() == 9


def test_lies_in_memory_of_others_without_a_copy():
    spec = filled().spec
    block = SharedBlock(spec.nbytes)
    written = filled(block.buffer, spec)
    read = Fragment.in_buffer(block.buffer, spec).take_objects(written.objects)
    check(read)
    written.reward[0, 0] = 77
    assert read.reward[0, 0] == 77
    with pytest.raises(ShapeError, match=rf"expected {spec.nbytes} bytes, got 100"):
        Fragment.in_buffer(bytearray(100), spec)


def test_travels_as_one_buffer():
    fragment = filled()
    buffers = []
    message = pickle.dumps(fragment, 5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [fragment.nbytes]
    assert fragment.nbytes < fragment.spec.nbytes
    read = pickle.loads(message, buffers=buffers)
    check(read)
    arrays = [leaf for leaf in leaves(read.obs) if leaf.dtype != object]
    arrays += [read.reward, read.terminated, read.final_t, read.extras["log_prob"]]
    whole = np.frombuffer(buffers[0].raw(), np.uint8)
    assert all(np.shares_memory(array, whole) for array in arrays)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_travels_within_a_pickle(protocol):
    check(pickle.loads(pickle.dumps(filled(), protocol)))


def test_can_be_read_where_it_must_not_be_written():
    fragment = filled()
    carried = bytes(fragment._block[: fragment.nbytes])
    read = Fragment.in_buffer(carried, fragment.spec).take_objects(fragment.objects)
    check(read)
    assert not read.reward.flags.writeable


def test_copy_is_independent():
    fragment = filled()
    copied = fragment.copy()
    fragment.begin(nested_obs(9))
    fragment.reward[:] = -1
    check(copied)


def test_state_can_be_put_back():
    fragment = filled()
    snapshot = Snapshot([fragment])
    fragment.begin(nested_obs(9))
    fragment.reward[:], fragment.valid[:] = -1, False
    snapshot.restore()
    check(fragment)


def test_final_observations_in_rows_are_not_stored_twice():
    """With envs reset by their next step, the row after the end is where the episode arrived."""
    obs = Layout(np.dtype(np.float32), (1000,))
    action = Layout(np.dtype(np.int64), ())
    sizes = []
    for final_in_rows in (True, False):
        fragment = Fragment.empty(FragmentSpec(2, 1, obs, action, final_in_rows=final_in_rows))
        fragment.begin(np.zeros((1, 1000)))
        for t in range(2):
            over = np.array([t == 0])
            fragment.write(
                t,
                action=np.zeros(1, int),
                reward=np.zeros(1),
                terminated=over,
                truncated=~over & False,
                next_obs=np.full((1, 1000), t + 1),
            )
            if over[0]:
                fragment.end(t, 0, np.full(1000, 1.0))
        assert fragment.final_obs.tolist() == [[1.0] * 1000]
        assert fragment.next_obs(0)[0, 0] == 1
        sizes.append(fragment.nbytes)
    assert sizes[1] - sizes[0] >= 4000


def plain_tally(reward, ended, valid, returns, lengths):
    """The twin: step after step."""
    over = []
    for b in range(reward.shape[1]):
        for t in range(reward.shape[0]):
            if valid[t, b]:
                returns[b] = returns[b] + reward[t, b]
                lengths[b] += 1
            if ended[t, b]:
                over.append((t, b, np.copy(returns[b]), lengths[b]))
                returns[b], lengths[b] = returns[b] * 0, 0
    return sorted(over, key=lambda record: record[:2])


@settings(max_examples=examples(40))
@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 2), st.randoms(use_true_random=False))
def test_returns_and_lengths_equal_the_plain_twin(steps, width, parts, random):
    rng = np.random.default_rng(random.randrange(10**6))
    shape = (parts,) if parts else ()
    spec = FragmentSpec(steps, width, NUMBER, NUMBER, reward=Layout(np.dtype(np.float64), shape))
    fragment = Fragment.empty(spec)
    running = np.zeros((width, *shape)), np.zeros(width, np.int64)
    twin = np.zeros((width, *shape)), np.zeros(width, np.int64)
    for _ in range(3):  # episodes go on from fragment to fragment
        fragment.begin(np.zeros(width))
        # Whole numbers add up exactly in any order.
        fragment.reward[:] = rng.integers(-9, 9, fragment.reward.shape)
        fragment.terminated[:] = rng.random((steps, width)) < 0.2
        fragment.truncated[:] = rng.random((steps, width)) < 0.2
        fragment.valid[:] = rng.random((steps, width)) < 0.8
        ended = fragment.terminated | fragment.truncated
        places = list(zip(*np.nonzero(ended), strict=True))
        rng.shuffle(places)
        for t, b in places:
            fragment.end(int(t), int(b), 0.0)
        fragment.tally(*running)
        expected = plain_tally(fragment.reward, ended, fragment.valid, *twin)
        records = fragment.endings[np.lexsort((fragment.final_b, fragment.final_t))]
        got = [(r["t"], r["b"], r["return"], r["length"]) for r in records]
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine[:2] == theirs[:2]
            np.testing.assert_array_equal(mine[2], theirs[2])
            assert mine[3] == theirs[3]
        np.testing.assert_array_equal(running[0], twin[0])
        np.testing.assert_array_equal(running[1], twin[1])


def test_what_was_lost_is_no_episode():
    fragment = Fragment.empty(FragmentSpec(1, 2, NUMBER, NUMBER))
    fragment.begin(np.zeros(2))
    fragment.truncated[:] = True
    fragment.valid[0, 0] = False
    fragment.reward[:] = 5
    fragment.end(0, 0, 0.0, lost=True)
    fragment.end(0, 1, 0.0)
    fragment.tally(np.zeros(2), np.zeros(2, np.int64))
    assert (fragment.episodes, fragment.env_steps) == (1, 1)
    assert fragment.episode_returns.tolist() == [5]
    assert len(fragment.endings) == 2
