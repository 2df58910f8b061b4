"""Both orders of a network hold the same edges, and sums agree with the plain ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import NetworkError
from hotloop.sim.network import Network, PeriodicNetwork, RandomContacts


@given(size=st.integers(1, 30), count=st.integers(0, 80), seed=st.integers(0, 99))
def test_both_orders_hold_every_edge_once(size, count, seed):
    edges = np.random.default_rng(seed).integers(0, size, (count, 2)).astype(np.int32)
    network = Network.from_edges(size, edges)
    pulled = [
        (int(src), dst)
        for dst in range(size)
        for src in network.in_src[network.in_ptr[dst] : network.in_ptr[dst + 1]]
    ]
    pushed = [
        (src, int(dst))
        for src in range(size)
        for dst in network.out_dst[network.out_ptr[src] : network.out_ptr[src + 1]]
    ]
    assert sorted(pulled) == sorted(pushed) == sorted(map(tuple, edges.tolist()))
    for ptr, ids in ((network.in_ptr, network.in_src), (network.out_ptr, network.out_dst)):
        for i in range(size):
            row = ids[ptr[i] : ptr[i + 1]]
            assert (np.diff(row) >= 0).all()
    assert network.num_agents == size
    assert network.num_edges == count
    assert network.nbytes == 8 * count + 8 * (size + 1)


@given(seed=st.integers(0, 99), replicates=st.integers(1, 3))
@settings(max_examples=20)
def test_sums_of_messages(seed, replicates):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, 12, (40, 2))
    message = torch.from_numpy(rng.integers(0, 1000, (replicates, 12)).astype(np.int32))
    expected = torch.zeros(replicates, 12, dtype=torch.int32)
    for src, dst in edges.tolist():
        expected[:, dst] += message[:, src]
    network = Network.from_edges(12, edges)
    assert torch.equal(network.sum_from(message), expected)
    assert torch.equal(network.sum_from(message[0]), expected[0])
    other = Network.from_edges(12, edges[:7])
    periodic = PeriodicNetwork([other, network])
    assert torch.equal(periodic.sum_from(message, 3), expected)
    assert periodic.max_in_degree == network.max_in_degree


def test_sums_can_be_differentiated():
    network = Network.from_edges(3, np.array([[0, 1], [0, 2], [1, 2]]))
    for shape in ((3,), (2, 3)):
        message = torch.ones(shape, requires_grad=True)
        network.sum_from(message).sum().backward()
        assert torch.equal(message.grad, torch.tensor([2.0, 1.0, 0.0]).expand(shape))


def test_random_contacts_are_the_same_on_every_path_and_new_each_step():
    contacts = RandomContacts(50, 3, seed=2)
    message = torch.arange(50, dtype=torch.int64)
    for step in range(3):
        drawn = contacts.at(step)
        assert (np.diff(drawn.in_ptr) == 3).all()
        assert torch.equal(contacts.sum_from(message, step), drawn.sum_from(message))
    assert not np.array_equal(contacts.at(0).in_src, contacts.at(1).in_src)
    assert np.array_equal(contacts.at(1).in_src, contacts.at(1).in_src)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [2, 5]], r"row 1 is \(2, 5\), but the agents are 0 to 4"),
        ([[0, -1]], "row 0"),
        ([[0, 1, 2]], "shape"),
        ([[0.0, 1.5]], "integer"),
    ],
)
def test_invalid_edges_are_refused(edges, message):
    with pytest.raises(NetworkError, match=message):
        Network.from_edges(5, np.array(edges))


def test_other_invalid_networks_are_refused():
    with pytest.raises(NetworkError, match="at least one"):
        PeriodicNetwork([])
    with pytest.raises(NetworkError, match=r"\[3, 4\]"):
        PeriodicNetwork([Network.from_edges(n, np.zeros((0, 2), int)) for n in (3, 4)])
    with pytest.raises(NetworkError, match="degree -1"):
        RandomContacts(3, -1)
