"""The clipped loss and its minibatches, beside their definitions written plainly."""

import numpy as np
import pytest
import torch

from hotloop.data.layout import tree_map
from hotloop.learn import losses
from hotloop.learn.losses import Batch, clipped_gain

ROWS = 22


def batch_of(rows: int) -> Batch:
    """Rows that are told apart, and observations that are a tree."""
    number = torch.arange(rows, dtype=torch.float32)
    obs = {"image": number.view(-1, 1, 1).expand(-1, 2, 3).clone(), "pair": (number, -number)}
    return Batch(obs, number.long(), number, number * 2, number * 3)


@pytest.mark.parametrize("clip", [0.2, torch.tensor(0.2)])
def test_the_gain_and_its_gradient_are_those_of_the_definition(clip):
    generator = torch.Generator().manual_seed(1)
    log_ratio = torch.randn(500, generator=generator) * 0.4
    advantage = torch.randn(500, generator=generator)
    log_ratio[:5] = torch.tensor([0.0, 80.0, -80.0, 80.0, -80.0])
    advantage[1:6] = torch.tensor([1.0, 1.0, 2.0, -1.0, 0.0])
    advantage[3] = 0.5  # exp(80) times a negative advantage has no bound, and no finite mean
    mine, plain = (log_ratio.clone().requires_grad_() for _ in range(2))
    ratio = plain.exp()
    expected = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    gain = clipped_gain(mine, advantage, clip)
    torch.testing.assert_close(gain, expected)
    gain.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, plain.grad)


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
