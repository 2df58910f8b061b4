"""Python loops over a batch axis are found; loops whose passes need each other are not."""

import ast
import time
from collections.abc import Callable

import numpy as np
import pytest

from hotloop.optimize.loops import loops_of
from support.loops import busy
from support.planted import figure, line_of, share, the_advice, watch

X = np.random.default_rng(0).random((200, 16), dtype=np.float32)


def by_position() -> None:
    out = np.zeros(len(X))
    for i in range(len(X)):  # fault
        low = X[i].min()
        scale = 2.0 if low > 0.5 else 1.0
        out[i] = scale * np.tanh(X[i] - low).sum()
    busy(0.0003)


def by_row() -> None:
    total = 0.0
    for row in X:  # fault
        total += np.sqrt(row).sum()
    busy(0.0003)


def by_comprehension() -> None:
    np.stack([np.exp(row) for row in X])  # fault
    busy(0.0003)


def by_column() -> None:
    found = []
    for k in range(X.shape[1]):  # fault
        found.append(np.sort(np.sort(X[:, k]) + X[:, k]))
    busy(0.0002)


def by_pairs() -> None:
    forces = np.zeros_like(X)
    for i, own in enumerate(X):  # fault
        for j in range(16):
            forces[i] += np.sign(own - X[j])


@pytest.mark.parametrize(
    ("body", "passes", "shape"),
    [
        (by_position, 200, "axis 0 of X (200 × 16, float32)"),
        (by_row, 200, "axis 0 of X (200 × 16, float32)"),
        (by_comprehension, 200, "axis 0 of X (200 × 16, float32)"),
        (by_column, 16, "axis 1 of X (200 × 16, float32)"),
        (by_pairs, 200, "axis 0 of X (200 × 16, float32)"),
    ],
)
def test_a_loop_over_an_axis_is_found_with_its_array(
    body: Callable[[], None], passes: int, shape: str
) -> None:
    advice = the_advice(body, "python loop", computes=True)
    assert (advice.file, advice.line, advice.function) == (
        __file__,
        line_of(body),
        body.__name__,
    )
    assert figure(advice, "passes") == passes
    assert shape in advice.sentence
    assert share(advice) > 0.1
    assert any(advice.line <= hot.line for hot in advice.hottest)


def test_an_iteration_that_waits_first_is_followed_to_its_end() -> None:
    def sum_rows() -> None:
        total = 0.0
        for row in X:
            total += np.sqrt(row).sum()

    def body() -> None:
        time.sleep(0.25)
        until_s = time.thread_time() + 0.1  # its share is the same on every processor
        while time.thread_time() < until_s:
            sum_rows()

    (advice,) = watch(body, "python loop", seconds=0.2)
    assert figure(advice, "passes") == len(X)


def test_a_loop_over_tensors_of_torch_is_found() -> None:
    torch = pytest.importorskip("torch")
    batch = torch.rand(64, 8)

    def body() -> None:
        total = 0.0
        for k in range(64):  # fault
            total += torch.tanh(batch[k]).sum()

    advice = the_advice(body, "python loop", computes=True)
    assert advice.line == line_of(body)
    assert "batch (64 × 8, float32)" in advice.sentence


def vectorised() -> None:
    low = X.min(axis=1, keepdims=True)
    np.tanh(X - low).sum(axis=1)
    np.sqrt(X).sum()


def recurrence() -> None:
    values = np.zeros(200)
    for t in reversed(range(199)):
        values[t] = X[t, 0] + 0.99 * values[t + 1]
        np.tanh(X[t])


def carried() -> None:
    last = np.zeros(16)
    for t in range(200):
        last = 0.9 * last + X[t]
        np.tanh(last)


class Simulator:
    def step(self, action: np.ndarray) -> np.ndarray:
        return np.tanh(action)


SIMULATOR = Simulator()


def rollout() -> None:
    rewards = np.zeros((200, 16))
    for t in range(200):
        rewards[t] = SIMULATOR.step(X[t])


def minibatches() -> None:
    order = np.arange(200)
    for start in range(0, 200, 20):
        np.tanh(X[order[start : start + 20]]).sum()


def few_passes() -> None:
    for k in range(4):
        np.sort(np.tile(X[k], 200))


TEXTS = [f"text {k}" for k in range(50)]
CHOSEN = np.arange(200) % 50


def chosen_texts() -> None:
    np.stack([np.tanh(X[: len(TEXTS[k])]).sum() for k in CHOSEN])


def over_objects() -> None:
    for name in ("a", "b") * 20:
        np.tanh(X).sum() + len(name)


@pytest.mark.parametrize(
    "body",
    [vectorised, recurrence, carried, rollout, minibatches, few_passes, chosen_texts, over_objects],
)
def test_other_loops_are_silent(body: Callable[[], None]) -> None:
    assert watch(body, "python loop", seconds=0.5) == []


def dependence(source: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("source") / "loop.py"
    file.write_text(source)
    assert ast.parse(source)
    (found,) = loops_of(str(file))
    return found.dependent


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("y = x[i]\n    z = y * y", ""),
        ("total += x[i]", ""),
        ("total += x[i] * total", "total is passed on"),
        ("total = total + x[i]", ""),
        ("total = 0.9 * total + x[i]", "total is passed on"),
        ("for j in range(3):\n        y = x[i] * j", ""),
        ("if x[i] > 0:\n        s = 1\n    else:\n        s = 2\n    y = s", ""),
        ("if x[i] > 0:\n        s = 1\n    y = s", "s is passed on"),
        ("x[i] = x[i - 1]", "x is read where another pass writes it"),
        ("x[i] = x[i] * 2", ""),
        ("y = env.step(x[i])", "step() has an effect"),
        ("print(x[i])", "for its effect"),
        ("out.append(x[i])", ""),
        ("best = [k for k in x[i]]", ""),
    ],
)
def test_the_source_says_whether_passes_need_each_other(
    body: str, why: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = dependence(f"for i in range(n):\n    {body}\n", tmp_path_factory)
    assert why in found if why else found == ""
