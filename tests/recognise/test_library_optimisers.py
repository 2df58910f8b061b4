"""Optimisers that libraries write themselves: their steps are a stage, fed by left gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hotloop.loop.arm import FREE, RECORD, Arm
from hotloop.recognise.recognition import Recognition

# What makes a step of training, and the weights that it changes.
Training = tuple[Callable[[], object], Callable[[], Tensor]]


def keras_training(monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    x, y = torch.rand(8, 4), torch.rand(8, 1)
    return lambda: model.train_on_batch(x, y), lambda: model.layers[0].kernel.value


def fastai_training(_monkeypatch: pytest.MonkeyPatch) -> Training:
    optimizer = pytest.importorskip("fastai.optimizer")
    model = nn.Linear(4, 1)
    adam = optimizer.Adam(list(model.parameters()), lr=0.1)

    def step() -> None:
        adam.zero_grad()
        model(torch.rand(8, 4)).square().mean().backward()
        adam.step()

    return step, lambda: model.weight


TRAININGS = pytest.mark.parametrize("training", [keras_training, fastai_training])


@TRAININGS
def test_weights_stay_as_they_are_while_steps_are_replaced(
    recognition: Recognition,
    training: Callable[[pytest.MonkeyPatch], Training],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, weights = training(monkeypatch)
    recognition.control.set(Arm("recording", rest=RECORD))
    for _ in range(3):
        step()
    before = weights().detach().clone()
    recognition.control.set(Arm("free", {"optimiser step": FREE}))
    step()
    assert torch.equal(weights(), before)
    recognition.control.set(Arm("as it is"))
    step()
    assert not torch.equal(weights(), before)


@TRAININGS
def test_steps_find_gradients_while_backward_passes_are_replaced(
    recognition: Recognition,
    training: Callable[[pytest.MonkeyPatch], Training],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, weights = training(monkeypatch)
    recognition.control.set(Arm("recording", rest=RECORD))
    for _ in range(3):
        step()
    before = weights().detach().clone()
    recognition.control.set(Arm("free", {"forward + backward": FREE}))
    step()
    assert not torch.equal(weights(), before)
