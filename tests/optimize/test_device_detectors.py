"""Waiting for a device and tensors made on the wrong one, on a card made of CPU memory."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.detector_scripts import install_card  # noqa: E402

from support.planted import figure, line_of, the_advice, watch  # noqa: E402


@pytest.fixture
def device() -> Iterator[Any]:
    install_card()
    with sys.modules["card"].card() as found:
        yield found
    del sys.modules["card"]


def model_on(device: Any) -> tuple[Any, Any, Any]:
    net = torch.nn.Linear(8, 2).to(device)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    return net, optimiser, torch.randn(64, 8, device=device)


def step(net: Any, optimiser: Any, x: Any) -> Any:
    loss = net(x).pow(2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach()


def reads_item(device: Any) -> Callable[[], None]:
    parts = model_on(device)
    total = [0.0]

    def body() -> None:
        loss = step(*parts)
        total[0] += loss.item()  # fault

    return body


def copies_to_host(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        step(*parts)
        parts[2].cpu().numpy()  # fault

    return body


def decides_by_value(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        if step(*parts) > 100:  # fault
            raise RuntimeError("diverged")

    return body


def selects_by_mask(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        step(*parts)
        x = parts[2]
        x[x[:, 0] > 0].sum()  # fault

    return body


@pytest.mark.parametrize(
    ("make", "moved"),
    [(reads_item, 4), (copies_to_host, 64 * 8 * 4), (decides_by_value, 1), (selects_by_mask, 0)],
)
def test_a_wait_for_the_device_is_found_with_what_it_copies(
    device: Any, make: Callable[[Any], Callable[[], None]], moved: int
) -> None:
    advice = the_advice(make(device), "synchronisation")
    assert advice.line == line_of(make)
    assert advice.file == __file__
    assert advice.function.endswith("body")
    assert figure(advice, "waits an iteration") == 1
    assert figure(advice, "copied to the host an iteration") == moved


def test_an_iteration_that_waits_first_is_watched_to_its_end(device: Any) -> None:
    """So is one that has no core for longer than watching may slow it down."""
    copy = copies_to_host(device)

    def body() -> None:
        time.sleep(0.2)
        copy()

    (advice,) = watch(body, "synchronisation", seconds=0.2)
    assert figure(advice, "waits an iteration") == 1


def test_an_explicit_wait_is_found(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    own = torch.cuda.synchronize
    parts = model_on(device)

    def body() -> None:
        step(*parts)
        torch.cuda.synchronize()  # fault

    advice = the_advice(body, "synchronisation")
    assert advice.line == line_of(body)
    assert torch.cuda.synchronize is own


def test_a_loop_that_reads_once_in_many_iterations_is_silent(device: Any) -> None:
    parts = model_on(device)
    count = [0]

    def body() -> None:
        loss = step(*parts)
        parts[2].to("cpu", non_blocking=True)
        count[0] += 1
        if count[0] % 50 == 0:
            loss.item()

    assert watch(body, "synchronisation") == []


def test_reading_numbers_of_the_host_is_no_wait() -> None:
    x = torch.randn(64)

    def body() -> None:
        x.sum().item()
        bool(x[0] > 0)
        x[x > 0].tolist()
        x.cpu().numpy()

    assert watch(body, "synchronisation") == []


def makes_noise_on_host(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        noise = torch.randn(64, 8)  # fault
        step(parts[0], parts[1], parts[2] + noise.to(device))

    return body


def makes_view_on_host(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        start = torch.zeros(512).view(64, 8)  # fault
        step(parts[0], parts[1], parts[2] + start.to(device))

    return body


def makes_index_on_host(device: Any) -> Callable[[], None]:
    parts = model_on(device)

    def body() -> None:
        order = torch.randperm(64)  # fault
        step(parts[0], parts[1], parts[2][order])

    return body


@pytest.mark.parametrize(
    ("make", "copied"),
    [(makes_noise_on_host, 2048), (makes_view_on_host, 2048), (makes_index_on_host, 512)],
)
def test_a_tensor_made_on_the_wrong_device_is_found_where_it_is_made(
    device: Any, make: Callable[[Any], Callable[[], None]], copied: int
) -> None:
    advice = the_advice(make(device), "wrong device")
    assert (advice.line, advice.file) == (line_of(make), __file__)
    assert figure(advice, "tensors an iteration") == 1
    assert figure(advice, "copied to the device an iteration") == copied


def test_tensors_made_on_the_device_and_data_of_the_host_are_silent(device: Any) -> None:
    parts = model_on(device)
    data = torch.randn(256, 8)
    buffer = torch.empty(64, 8)

    def body() -> None:
        noise = torch.randn(64, 8, device=device)
        batch = data[torch.randperm(256)[:64]]  # on the host, for the host
        buffer.copy_(batch)
        step(parts[0], parts[1], buffer.to(device) + noise * torch.tensor(0.5))

    assert watch(body, "wrong device") == []
