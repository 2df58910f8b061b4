"""What a script reads in `.grad` is there while forward and backward passes are replaced."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from hotloop.loop.arm import FREE, RECORD, Arm
from hotloop.recognise.recognition import Recognition

REPLACED = Arm("free", {"forward + backward": FREE})


def replaced(recognition: Recognition, step: Callable[[], torch.Tensor | None]) -> torch.Tensor:
    """What a step returns while passes are replaced, after some that were recorded."""
    recognition.control.set(Arm("recording", rest=RECORD))
    for _ in range(3):
        step()
    recognition.control.set(REPLACED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = step()
    assert found is not None
    return found


@pytest.mark.parametrize("by_name", [False, True])
def test_the_gradient_of_an_input(recognition: Recognition, by_name: bool) -> None:
    model = nn.Linear(4, 1)

    def attack() -> torch.Tensor | None:
        images = torch.rand(8, 4).requires_grad_()
        output = model(input=2 * images) if by_name else model(2 * images)
        output.sum().backward()
        return images.grad

    torch.testing.assert_close(
        replaced(recognition, attack), 2 * model.weight.detach().expand(8, 4)
    )


def test_the_gradient_of_an_output_that_is_retained(recognition: Recognition) -> None:
    encode, decode = nn.Linear(4, 3), nn.Linear(3, 1)

    def explain() -> torch.Tensor | None:
        hidden = encode(torch.rand(8, 4))
        hidden.retain_grad()
        decode(hidden).sum().backward()
        return hidden.grad

    torch.testing.assert_close(replaced(recognition, explain), decode.weight.detach().expand(8, 3))


def test_the_gradient_of_what_the_script_computes_of_an_output(recognition: Recognition) -> None:
    model = nn.Linear(4, 3)

    def step() -> torch.Tensor | None:
        doubled = 2 * model(torch.rand(8, 4))
        doubled.retain_grad()
        (3 * doubled).sum().backward()
        return doubled.grad

    torch.testing.assert_close(replaced(recognition, step), torch.full((8, 3), 3.0))


def test_an_input_of_a_shape_that_was_not_recorded_has_zeros(recognition: Recognition) -> None:
    model, sizes = nn.Linear(4, 1), iter([8, 8, 8, 5])

    def attack() -> torch.Tensor | None:
        images = torch.rand(next(sizes), 4).requires_grad_()
        model(images).sum().backward()
        return images.grad

    torch.testing.assert_close(replaced(recognition, attack), torch.zeros(5, 4))
    assert recognition.stages["backward"].tape.missed


def test_weights_that_no_optimiser_updates(recognition: Recognition) -> None:
    model = nn.Linear(4, 1)

    def descend() -> torch.Tensor | None:
        model(torch.ones(8, 4)).sum().backward()
        gradient = model.weight.grad
        for weights in model.parameters():
            weights.grad = None
        return gradient

    torch.testing.assert_close(replaced(recognition, descend), torch.full((1, 4), 8.0))


def test_where_nothing_else_was_read_an_input_is_left_as_it_is(recognition: Recognition) -> None:
    model, other = nn.Linear(4, 1), nn.Linear(2, 1)
    optimiser = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)

    def update() -> torch.Tensor:
        optimiser.zero_grad()
        images = torch.ones(8, 4)
        model(images).sum().backward()
        optimiser.step()
        return torch.tensor(images.grad is None)

    assert replaced(recognition, update)
