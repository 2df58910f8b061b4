"""The rules by which operations are counted: numbers worked by hand, and torch's own counter."""

from collections.abc import Callable
from typing import Any

import pytest

from hotloop.benchmark.work import Operation, WorkCounter
from hotloop.loop.clock import RealClock

torch = pytest.importorskip("torch")
nn = torch.nn


def operations(work: Callable[[], object]) -> list[Operation]:
    counter = WorkCounter(RealClock())
    counter.start()
    try:
        work()
    finally:
        counter.stop()
    return counter.operations


def flops(work: Callable[[], object]) -> float:
    found = operations(work)
    assert found, "something was computed"
    assert all(each.flops is not None for each in found), found
    return sum(each.flops or 0.0 for each in found)


def step_of(optimizer: Any) -> Callable[[], object]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()  # the first one makes its state
    return lambda: optimizer.step()


X, Y = torch.rand(3, 5), torch.rand(3, 5)
WHOLE = torch.ones(3, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: X + Y, 15),
        (lambda: X.clone().mul_(Y), 15),
        (lambda: X < Y, 15),
        (lambda: torch.tanh(X), 15),
        (lambda: torch.addcmul(X, X, Y), 45),
        (lambda: X.sum(0), 15),
        (lambda: X.mean(), 15),
        (lambda: X.argmax(1), 15),
        (lambda: X.var(), 60),
        (lambda: torch.maximum(X, Y), 15),
        (lambda: X.cumsum(0), 15),
        (lambda: torch.softmax(X, -1), 75),
        (lambda: nn.functional.layer_norm(X, (5,)), 120),
        (lambda: X @ Y[0], 30),
        (lambda: X[0] @ Y[0], 10),
        (lambda: X @ Y.T, 2 * 3 * 5 * 3),
        (lambda: nn.functional.mse_loss(X, Y), 45),
        (lambda: nn.functional.max_pool2d(torch.ones(1, 1, 4, 4), 2), 4 * 4),
        (lambda: torch._foreach_add([X, X[0]], [Y, Y[0]]), 20),
        (lambda: torch._foreach_norm([X, X[0]]), 2 * 20),
        (lambda: torch.rand(3, 5), 15),
        # What only moves numbers, and whole numbers, are no floating-point operations.
        (lambda: torch.cat([X, Y]), 0),
        (lambda: torch.where(X < Y, X, Y), 15),
        (lambda: X[torch.tensor([0, 2])], 0),
        (lambda: X.to(torch.float64), 0),
        (lambda: WHOLE + WHOLE, 0),
        (lambda: WHOLE.sum(), 0),
        (lambda: torch._is_all_true(X < Y), 15),  # what checks a distribution's arguments
    ],
)
def test_operations_count_what_their_definition_says(
    work: Callable[[], object], expected: int
) -> None:
    assert flops(work) == expected


def test_an_optimiser_counts_alike_in_one_operation_in_lists_and_one_by_one() -> None:
    counts = []
    for way in ({"fused": True}, {"foreach": True}, {"foreach": False}):
        parameters = [nn.Parameter(torch.ones(size)) for size in (40, 7)]
        counts.append(flops(step_of(torch.optim.Adam(parameters, **way))))
    steps = 2  # of which each parameter counts its own
    assert counts == [13 * 47 + steps] * 3


@pytest.mark.parametrize(
    ("settings", "each"), [({}, 2), ({"momentum": 0.9}, 4), ({"weight_decay": 0.1}, 4)]
)
def test_fused_descent_counts_what_it_is_asked_for(settings: dict[str, Any], each: int) -> None:
    parameters = [nn.Parameter(torch.ones(40))]
    assert flops(step_of(torch.optim.SGD(parameters, fused=True, **settings))) == each * 40


def test_products_are_those_of_torchs_own_counter() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
    )
    net.append(nn.Linear(8 * 7 * 7, 10))
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    images, words = torch.randn(4, 3, 16, 16), torch.randn(2, 6, 16)

    def work() -> None:
        loss = nn.functional.cross_entropy(net(images), torch.zeros(4, dtype=torch.int64))
        (loss + attention(words, words, words)[0].square().mean()).backward()

    found = operations(work)
    with FlopCounterMode(display=False) as counter:
        work()
    assert sum(each.flops for each in found if each.is_product) == counter.get_total_flops()
    assert {each.name for each in found if each.flops is None} == set()


def test_a_layer_in_inference_mode_counts_as_what_it_is_made_of() -> None:
    layer, x = nn.Linear(6, 4), torch.randn(2, 6)

    def inference() -> None:
        with torch.inference_mode():
            layer(x)

    def plain() -> None:
        with torch.no_grad():
            layer(x)

    assert flops(inference) == flops(plain) == 2 * 2 * 6 * 4


def test_operations_of_others_and_those_without_a_rule_are_not_counted() -> None:
    with torch.library._scoped_library("planted_flops", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        found = operations(lambda: torch.ops.planted_flops.twice(X))
    assert found[0].name == "planted_flops.twice"
    assert found[0].flops is None
    assert found[0].moved_bytes == 2 * X.nbytes
    (own,) = operations(lambda: torch.linalg.det(torch.eye(3)))[-1:]
    assert own.flops is None


def test_what_changes_in_place_is_read_and_written() -> None:
    (added,) = operations(lambda: torch._foreach_add_([X.clone()], 1.0))[-1:]
    assert added.moved_bytes == 2 * X.nbytes
