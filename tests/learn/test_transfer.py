"""Batches on their way to the device: each once, in order, whole, and one ahead."""

import numpy as np
import pytest
import torch

from hotloop.learn.algorithms import learner_type
from hotloop.learn.losses import Batch
from hotloop.learn.transfer import BUFFERS, PinnedTransfer, PlainTransfer

CPU = torch.device("cpu")


class EagerLane:
    """Copies at once: a buffer that is still learned from would be seen to change."""

    def __init__(self):
        self.log = []

    def buffer(self, like):
        return torch.empty_like(like)

    def copy(self, pairs):
        pairs = list(pairs)
        self.log.append(("copy", float(pairs[0][0].reshape(-1)[0])))
        self.run(pairs)
        return pairs

    def run(self, pairs):
        for source, target in pairs:
            target.copy_(source)

    def computing_waits_for(self, mark):
        self.log.append(("take", float(mark[0][1].reshape(-1)[0])))

    def host_waits_for(self, mark):
        pass


class LateLane(EagerLane):
    """Copies when it is waited for: a source that was written too soon would be seen to change."""

    def run(self, pairs):
        pass

    def computing_waits_for(self, mark):
        self.host_waits_for(mark)
        super().computing_waits_for(mark)

    def host_waits_for(self, mark):
        super().run(mark)
        del mark[1:]  # once


@pytest.fixture(params=[EagerLane, LateLane])
def lane(request):
    return request.param()


def tree(number, rows=3):
    return {"a": np.full((rows, 2), number, np.float32)}, np.arange(rows) + 10 * number


def test_each_batch_comes_once_in_order_and_whole(lane):
    transfer, drawn = PinnedTransfer(CPU, lane), []

    def numbers():
        for number in range(7):
            drawn.append(number)
            yield number

    got = []
    for number, (a, b) in transfer.ahead(numbers(), tree):
        assert len(drawn) <= number + BUFFERS  # one ahead, and no more
        assert (a["a"] == number).all()
        assert b.tolist() == [10 * number, 10 * number + 1, 10 * number + 2]
        got.append(number)
    assert got == drawn == list(range(7))


def test_the_next_is_copied_before_this_one_is_learned_from():
    lane = EagerLane()
    for _ in PinnedTransfer(CPU, lane).ahead(range(4), tree):
        lane.log.append("learn")
    assert lane.log == [
        *(("copy", 0), ("copy", 1), ("take", 0), "learn"),
        *(("copy", 2), ("take", 1), "learn"),
        *(("copy", 3), ("take", 2), "learn"),
        *(("take", 3), "learn"),
    ]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_batches(lane, count):
    transfer = PinnedTransfer(CPU, lane)
    assert [k for k, _ in transfer.ahead(range(count), tree)] == list(range(count))


def test_two_buffers_are_used_again_and_again(lane):
    transfer = PinnedTransfer(CPU, lane)
    places = [b.data_ptr() for _, (_, b) in transfer.ahead(range(6), tree)]
    assert len(set(places)) == BUFFERS
    assert places == places[:2] * 3
    [(_, (a, b))] = transfer.ahead([9], lambda number: tree(number, rows=5))  # another shape
    assert a["a"].shape == (5, 2)
    assert b.tolist() == [90, 91, 92, 93, 94]


def test_what_was_moved_before_stays_valid(lane):
    transfer = PinnedTransfer(CPU, lane)
    for number in range(0, 6, 2):
        first, second = transfer.move(tree(number)), transfer.move(tree(number + 1))
        assert (first[0]["a"] == number).all()
        assert (second[0]["a"] == number + 1).all()


@pytest.mark.parametrize("count", [1, 4])
def test_minibatches_are_those_of_the_plain_transfer(lane, count):
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((12, 3), np.float32), rng.integers(0, 4, 12)]
    batch = (*rows, *(rng.standard_normal(12, np.float32) for _ in range(3)))
    found = [
        [
            Batch(*(part.clone() for part in one))
            for one in transfer.minibatches(batch, 3, count, np.random.default_rng(1))
        ]
        for transfer in (PlainTransfer(CPU), PinnedTransfer(CPU, lane))
    ]
    assert len(found[0]) == len(found[1]) == 3 * count
    for plain, pinned in zip(*found, strict=True):
        for mine, theirs in zip(plain, pinned, strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("algorithm", ["ppo", "appo", "impala", "apex"])
def test_every_learner_learns_from_the_same_batches(algorithm, lane):
    kind = learner_type(algorithm)
    usual = {"backend": "serial", "hidden_size": 8, "num_envs": 4}
    usual |= {} if algorithm == "ppo" else {"policy_at": "envs"}
    usual |= {"minibatches": 2} if algorithm in ("ppo", "appo") else {}
    # All alike: a batch that is drawn before the errors of another are known is the same.
    usual |= {"learn_after": 50, "priority_exponent": 0.0} if algorithm == "apex" else {}
    found = []
    for pinned in (False, True):
        learner = kind(kind.settings_type(**usual))
        if pinned:
            learner.transfer = PinnedTransfer(CPU, lane)
        for _ in range(4):
            learner.iterate()
        found.append(learner.policy.flat.detach().clone())
        learner.close()
    assert torch.equal(*found)
    assert lane.log
