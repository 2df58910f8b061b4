"""The clipped loss and its minibatches, beside their definitions written plainly."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.data.layout import tree_map
from hotloop.learn import losses
from hotloop.learn.losses import Batch, LossWeights, clipped_loss
from hotloop.learn.policies.distributions import distribution_for

ROWS = 22
SPACES = (
    spaces.Discrete(4),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(-1, 1, (3,), np.float32),
)


def batch_of(rows: int) -> Batch:
    """Rows that are told apart, and observations that are a tree."""
    number = torch.arange(rows, dtype=torch.float32)
    obs = {"image": number.view(-1, 1, 1).expand(-1, 2, 3).clone(), "pair": (number, -number)}
    return Batch(obs, number.long(), number, number * 2, number * 3)


def drawn(space, rows, seed=1):
    """A distribution, outputs and values with gradients, and a batch with ratios of all sizes."""
    rng = np.random.default_rng(seed)
    distribution = distribution_for(space)
    outputs = rng.standard_normal((rows, distribution.size)).astype(np.float32)
    action, log_prob = distribution.sample(outputs, rng)
    other = torch.from_numpy(log_prob + rng.normal(0, 0.4, rows).astype(np.float32))
    advantage, target, value = torch.from_numpy(rng.standard_normal((3, rows), np.float32))
    advantage[0] = 0.0
    batch = Batch(torch.zeros(rows, 1), torch.from_numpy(action), other, advantage, target)
    return distribution, torch.from_numpy(outputs).requires_grad_(), value.requires_grad_(), batch


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("entropy_weight", [0.0, 0.01])
@pytest.mark.parametrize("clip", [0.2, torch.tensor(0.2)], ids=["number", "tensor"])
def test_the_loss_and_its_gradients_are_those_that_torch_derives(space, entropy_weight, clip):
    distribution, outputs, value, batch = drawn(space, 300)
    weights = LossWeights(0.5, entropy_weight, clip)
    plain, plain_terms = losses._derived_loss(distribution, outputs, value, batch, weights)
    expected = torch.autograd.grad(plain, (outputs, value))
    policy = SimpleNamespace(distribution=distribution)
    settings = SimpleNamespace(value_weight=0.5, entropy_weight=entropy_weight)
    loss, terms = clipped_loss(policy, settings, batch, {"clip": clip}, (outputs, value))
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(torch.autograd.grad(loss, (outputs, value)), expected)
    for mine, theirs in zip(terms, plain_terms, strict=True):
        torch.testing.assert_close(mine, theirs)
    with torch.no_grad():
        assert torch.equal(
            clipped_loss(policy, settings, batch, {"clip": clip}, (outputs, value))[0], plain
        )


def test_a_second_derivative_is_refused():
    distribution, outputs, value, batch = drawn(spaces.Discrete(3), 8)
    policy = SimpleNamespace(distribution=distribution)
    settings = SimpleNamespace(value_weight=0.5, entropy_weight=0.01)
    loss, _ = clipped_loss(policy, settings, batch, {"clip": 0.2}, (outputs, value))
    (slope,) = torch.autograd.grad(loss, outputs, create_graph=True)
    with pytest.raises(RuntimeError, match=r"does not require grad|once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("part", ["log_prob", "advantage", "target"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_that_is_none_reaches_the_gradient(part, bad):
    """So that the step of the optimiser refuses it."""
    distribution, outputs, value, batch = drawn(spaces.Discrete(3), 8)
    getattr(batch, part)[3] = bad if part != "log_prob" else -abs(bad)
    if part == "log_prob":
        batch.advantage[3] = -1.0  # nothing bounds the ratio there
    policy = SimpleNamespace(distribution=distribution)
    settings = SimpleNamespace(value_weight=0.5, entropy_weight=0.01)
    loss, _ = clipped_loss(policy, settings, batch, {"clip": 0.2}, (outputs, value))
    by_outputs, by_value = torch.autograd.grad(loss, (outputs, value))
    assert not (by_outputs.isfinite().all() and by_value.isfinite().all())


@pytest.mark.parametrize("count", [1, 2, 5, 11, ROWS])
@pytest.mark.parametrize("most_bytes", [1, 200, 1 << 25])
def test_minibatches_are_the_rows_in_a_drawn_order(count, most_bytes, monkeypatch):
    """However many of them are gathered at once; the last may be smaller."""
    monkeypatch.setattr(losses, "MOST_GATHERED_BYTES", most_bytes)
    batch = batch_of(ROWS)
    order = torch.from_numpy(np.random.default_rng(3).permutation(ROWS))
    expected = [batch] if count == 1 else [_rows(batch, i) for i in order.chunk(count)]
    found = list(batch.parts(count, np.random.default_rng(3)))
    assert all(isinstance(part, Batch) for part in found)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def _rows(batch: Batch, index: torch.Tensor) -> Batch:
    return Batch(*(tree_map(lambda tensor: tensor[index], part) for part in batch))
