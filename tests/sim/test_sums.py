"""Compiled sums along edges equal the plain ones: by dtype, density, threads, and derivative."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad

from hotloop.errors import NetworkError
from hotloop.sim import sums
from hotloop.sim import threads as sim_threads
from hotloop.sim.network import Network, PeriodicNetwork, RandomContacts
from support.often import examples

WIDE = (torch.int32, torch.int64, torch.float32, torch.float64)
DTYPES = (*sums.NARROW, *WIDE)


def plain(network: Network, messages: torch.Tensor) -> torch.Tensor:
    """One edge after the other, by receiver, in the dtype of the sums."""
    sent = sums.widened(messages).detach().numpy()
    receivers = np.repeat(np.arange(network.num_agents), np.diff(network.in_ptr))
    result = np.zeros_like(sent)
    for row in np.ndindex(sent.shape[:-1]):
        np.add.at(result[row], receivers, sent[row][network.in_src])
    return torch.from_numpy(result)


def drawn_messages(
    rng: np.random.Generator, shape: tuple[int, ...], share: float, dtype: torch.dtype
) -> torch.Tensor:
    """Numbers of either sign over the dtype's range, of which `share` is not zero."""
    values = rng.normal(size=shape) if dtype.is_floating_point else rng.integers(-9, 10**9, shape)
    return torch.from_numpy(np.where(rng.random(shape) < share, values, 0)).to(dtype)


@settings(max_examples=examples(60))
@given(
    size=st.integers(1, 40),
    count=st.integers(0, 150),
    rows=st.sampled_from([(), (1,), (3,), (2, 2), (0,)]),
    share=st.sampled_from([0.0, 0.03, 0.3, 1.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 999),
)
def test_compiled_sums_equal_the_plain_ones_bit_for_bit(size, count, rows, share, dtype, seed):
    rng = np.random.default_rng(seed)
    network = Network.from_edges(size, rng.integers(0, size, (count, 2)))
    messages = drawn_messages(rng, (*rows, size), share, dtype)
    got = network.sum_from(messages)
    assert got.dtype == (torch.int32 if dtype in sums.NARROW else dtype)
    assert torch.equal(got, plain(network, messages))
    by_operations = network.on("cpu").sum_from(messages) if rows != (0,) else got
    assert by_operations.dtype == got.dtype
    assert torch.allclose(by_operations, got)


@pytest.fixture(scope="module")
def large() -> Network:
    """Three windows of receivers, with hubs, loops, doubled edges and agents without any."""
    rng = np.random.default_rng(4)
    size = 2 * sums.WINDOW + 777
    edges = rng.integers(0, size - 50, (60_000, 2))
    hubs = np.stack((rng.integers(0, size, 5_000), np.repeat([7, size - 1], 2_500)), 1)
    return Network.from_edges(size, np.concatenate((edges, edges[:500], hubs, hubs[:, ::-1])))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.08, 1.0])
def test_sparse_and_dense_messages_on_every_thread(large, share, dtype, threads, monkeypatch):
    monkeypatch.setattr(sim_threads, "LEAST_ITEMS", 1000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    messages = drawn_messages(np.random.default_rng(1), (2, large.num_agents), share, dtype)
    messages[1] = messages[1].roll(3)
    assert torch.equal(large.sum_from(messages), plain(large, messages))


def test_few_messages_are_pushed_and_many_are_pulled(large, monkeypatch):
    pulled = []
    compiled = sums._pull
    monkeypatch.setattr(sums, "_pull", lambda *given: pulled.append(given[3]) or compiled(*given))
    messages = torch.zeros(3, large.num_agents)
    messages[0, :20], messages[1], messages[2, 7] = 1.0, 1.0, 1.0
    expected = plain(large, messages)
    assert torch.equal(large.sum_from(messages), expected)
    assert [rows.tolist() for rows in pulled] == [[1]]  # and agent 7 is a hub of few edges


def test_messages_that_are_not_contiguous(large):
    shared = torch.ones(()).expand(2, large.num_agents)
    strided = torch.arange(2.0 * large.num_agents)[::2]
    for messages in (shared, strided, torch.ones(large.num_agents, 2).T):
        assert torch.equal(large.sum_from(messages), plain(large, messages.contiguous()))
    not_a_number = torch.zeros(large.num_agents)
    not_a_number[7] = torch.nan
    assert torch.equal(large.sum_from(not_a_number).isnan(), plain(large, not_a_number).isnan())


def contacts(kind: str) -> Network | PeriodicNetwork | RandomContacts:
    edges = np.random.default_rng(3).integers(0, 9, (30, 2))
    network = Network.from_edges(9, edges)
    if kind == "periodic":
        return PeriodicNetwork([Network.from_edges(9, edges[:4]), network])
    return RandomContacts(9, 3, seed=5) if kind == "random" else network


# Torch's own, when forward derivatives are first asked for.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", ["static", "periodic", "random"])
def test_derivatives_of_every_kind(kind):
    network = contacts(kind)

    def summed(messages: torch.Tensor) -> torch.Tensor:
        return network.sum_from(messages, 1)

    matrix = torch.stack([summed(row) for row in torch.eye(9, dtype=torch.float64)], 1)
    for shape in ((9,), (2, 9)):
        messages = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(summed, messages)
        assert torch.autograd.gradgradcheck(lambda m: summed(m) ** 2, messages)
        with torch.no_grad():
            assert torch.allclose(summed(messages), messages @ matrix.T)
    message = torch.randn(9, dtype=torch.float64)
    assert torch.allclose(torch.func.jacrev(summed)(message), matrix)
    assert torch.allclose(torch.func.jacfwd(summed)(message), matrix)
    batch = torch.randn(9, 4, dtype=torch.float64)
    assert torch.allclose(torch.func.vmap(summed, in_dims=1)(batch), batch.T @ matrix.T)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(summed(forward_ad.make_dual(message, batch[:, 0]))).tangent
    assert torch.allclose(tangent, matrix @ batch[:, 0])


@settings(max_examples=examples(40))
@given(
    size=st.integers(1, 60),
    degree=st.sampled_from([0, 1, 4, 5000]),
    rows=st.sampled_from([(), (3,)]),
    dtype=st.sampled_from(DTYPES),
    step=st.integers(0, 1000),
    threads=st.integers(1, 3),
)
def test_sums_over_drawn_contacts_equal_those_by_operations(
    size, degree, rows, dtype, step, threads
):
    network = RandomContacts(size, degree, seed=step - 7)
    messages = drawn_messages(np.random.default_rng(step), (*rows, size), 0.5, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim_threads, "LEAST_ITEMS", 50)
        patch.setattr(torch, "get_num_threads", lambda: threads)
        got = network.sum_from(messages, step)
    expected = network.sum_by_operations(messages, torch.tensor(step))
    assert got.dtype == expected.dtype
    exact = not dtype.is_floating_point
    assert torch.equal(got, expected) if exact else torch.allclose(got, expected, 1e-3, 1e-3)


@pytest.mark.parametrize("kind", ["static", "periodic", "random"])
def test_messages_of_another_shape_are_refused(kind):
    for messages in (torch.ones(8), torch.ones(3, 10), torch.tensor(1.0)):
        with pytest.raises(NetworkError, match=r"\(\.\.\., 9\)"):
            contacts(kind).sum_from(messages)
    half = torch.ones(9, dtype=torch.float16)  # which is left to torch
    assert contacts(kind).sum_from(half).dtype == torch.float16
