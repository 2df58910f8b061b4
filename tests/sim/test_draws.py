"""A draw belongs to its seed, step, stream and agent, and is uniform."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hotloop.sim import threads as sim_threads
from hotloop.sim.draws import bits, stream_key, uniform, uniform_by_operations, uniform_numpy
from support.plain_spread import draw

WORDS = st.integers(-(2**63), 2**63 - 1)


@given(
    seed=WORDS, step=st.integers(0, 32_000), stream=st.integers(0, 9), agent=st.integers(0, 10**9)
)
def test_kernel_numpy_and_tensor_give_the_bits_of_the_plain_twin(seed, step, stream, agent):
    expected = draw(seed, step, stream, agent)
    key = stream_key(np.uint64(seed % 2**64), np.uint64(step), np.uint64(stream))
    assert bits(key, np.uint64(agent)) / 2**32 == expected
    assert uniform_numpy(seed, step, stream, np.array([agent]))[0] == expected
    ids = torch.tensor([agent])
    for by in (uniform, uniform_by_operations):
        assert by(torch.tensor(seed), step, stream, ids).item() == expected
        of_one = by(torch.tensor([seed]), torch.tensor(step), stream, ids)
        assert of_one.tolist() == [[expected]]


@given(
    seeds=st.lists(WORDS, min_size=1, max_size=3),
    size=st.integers(0, 40),
    ids=st.lists(st.integers(0, 10**9), max_size=5),
    single=st.booleans(),
)
def test_compiled_draws_equal_those_of_torchs_operations(seeds, size, ids, single):
    seed = torch.tensor(seeds[0] if single else seeds)
    for agents in (size, torch.tensor(ids, dtype=torch.int64)):
        got, expected = (by(seed, 7, 2, agents) for by in (uniform, uniform_by_operations))
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        assert torch.equal(got, expected)
    strided = torch.arange(20)[::2]
    assert torch.equal(uniform(seed, 0, 0, strided), uniform_by_operations(seed, 0, 0, strided))


def test_draws_are_the_same_on_any_number_of_threads(monkeypatch):
    seeds = torch.tensor([3, -4])
    expected = uniform_by_operations(seeds, 1, 2, 1003)
    monkeypatch.setattr(sim_threads, "LEAST_ITEMS", 100)
    for threads in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        assert torch.equal(uniform(seeds, 1, 2, 1003), expected)


def test_draws_are_uniform_and_independent():
    """Between agents, steps, streams and seeds: correlations and a chi-square within 5 sigma."""
    n = 200_000
    base = uniform_numpy(1, 2, 3, n)
    counts = np.bincount((base * 256).astype(int), minlength=256)
    assert abs(((counts - n / 256) ** 2 / (n / 256)).sum() - 255) < 5 * np.sqrt(2 * 255)
    others = [uniform_numpy(*key, n) for key in ((1, 3, 3), (2, 2, 3), (1, 2, 4), (3, 2, 1))]
    for other in [*others, np.roll(base, 1)]:
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / np.sqrt(n)
    assert (base >= 0).all()
    assert (base < 1).all()
