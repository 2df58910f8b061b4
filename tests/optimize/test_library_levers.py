"""Levers of recognised libraries: each changes what runs, and what cannot be tried says why."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

import hotloop
from hotloop import Lever, Loop
from hotloop.errors import SettingError
from hotloop.optimize.libraries import LIVE, MADE, SETTING, Libraries, levers_for, set_levers
from hotloop.optimize.same_result import prints_of

pytest.importorskip("torch")
import torch

from hotloop.learn.ppo import PPO, PPOSettings

ENV = "CartPole-v1"


class Training:
    """A small training with torch, as a user writes one."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.x = torch.randn(16, 8)
        self.dtype = torch.float32  # in which the net computed last

    def iterate(self) -> int:
        out = self.net(self.x)
        self.dtype = out.dtype
        self.optimiser.zero_grad()
        out.float().pow(2).mean().backward()
        self.optimiser.step()
        return 16

    def loop(self) -> Loop:
        return Loop(self.iterate, unit="samples", state=[self])


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.fixture
def training() -> Iterator[Training]:
    """A training; what levers set of torch itself is put back."""
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cached = torch.is_autocast_cache_enabled()
    yield Training()
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(products)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_cache_enabled(cached)


def levers_of(training: Training) -> dict[str, Lever]:
    with Libraries({}, own_process=False) as libraries:
        return {lever.name: lever for lever in libraries.levers(training.loop())}


def apply(lever: Lever, option: Any) -> None:
    assert lever.apply is not None
    lever.apply(option)


# --- torch -------------------------------------------------------------------------------------


def test_threads_of_torch_are_set(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("hotloop.optimize.libraries.torch_levers.whole_cores", lambda: 4)
    lever = levers_of(training)["torch_threads"]
    assert (lever.options, lever.missing) == ((1, 2, 4), "")
    apply(lever, 2)
    assert torch.get_num_threads() == 2
    apply(lever, 1)
    monkeypatch.setattr("hotloop.optimize.libraries.torch_levers.whole_cores", lambda: 1)
    assert levers_of(training)["torch_threads"].missing == "more than one core"


def test_a_fused_optimiser_steps_in_one_kernel(training: Training) -> None:
    calls = _calls_of(training, "aten::_fused_adam_")
    lever = levers_of(training)["fused_optimiser"]
    assert not calls()
    apply(lever, True)
    assert calls()
    apply(lever, False)
    assert not calls()


def _calls_of(training: Training, operation: str) -> Callable[[], bool]:
    """Whether an iteration calls an operation of torch."""

    def called() -> bool:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            training.iterate()
        return any(event.key == operation for event in profile.key_averages())

    return called


def test_modules_are_compiled_by_the_mode(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(Net, "compile", lambda _self, mode: compiled.append(mode))
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/c++")
    lever = levers_of(training)["compiled_modules"]
    assert {"no", "default", "max-autotune"} <= set(lever.options)
    assert ("reduce-overhead" in lever.options) == torch.cuda.is_available()
    for mode in lever.options:
        apply(lever, mode)
    assert compiled == [mode for mode in lever.options if mode != "no"]
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert levers_of(training)["compiled_modules"].missing == "a C++ compiler on PATH"


def test_autocast_computes_in_half_the_bytes_with_the_parameters_of_now(
    training: Training,
) -> None:
    lever = levers_of(training)["autocast"]
    assert lever.keeps_result is False
    apply(lever, "bfloat16")
    training.iterate()
    assert training.dtype == torch.bfloat16
    before = training.net(training.x)
    with torch.no_grad():
        training.net.layer.weight += 1.0
    assert not torch.equal(training.net(training.x), before)
    apply(lever, "no")
    training.iterate()
    assert training.dtype == torch.float32
    assert training.net.layer.weight.dtype == torch.float32


def test_the_format_of_products_is_set(training: Training) -> None:
    lever = levers_of(training)["matmul_precision"]
    assert (lever.now, lever.keeps_result) == ("highest", False)
    apply(lever, "medium")
    assert torch.get_float32_matmul_precision() == "medium"


# --- calls: loaders and vector envs ----------------------------------------------------------


def script(text: str) -> Callable[[], Any]:
    """What a user's module with this text makes, line by line."""
    module = ModuleType("users_module")
    code = compile(text, "users.py", "exec")

    def made() -> Any:
        exec(code, vars(module))
        return module.made  # type: ignore[attr-defined]

    return made


def watched(
    make: Callable[[], Any], options: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, Lever], dict[str, str]]:
    """What is made with these options, the levers of it, and where each acts."""
    with Libraries(options or {}) as libraries:
        made = make()
        levers = libraries.levers(Loop(lambda: 1))
        where = {lever.name: libraries.where(lever) for lever in levers}
    return made, {lever.name: lever for lever in levers}, where


LOADER = script(
    "import torch\n"
    "data = torch.utils.data.TensorDataset(torch.arange(8.0))\n"
    "made = torch.utils.data.DataLoader(data, batch_size=2)\n"
)
PLACE = "DataLoader users.py:3"


def test_a_loader_is_made_with_the_options() -> None:
    _, levers, where = watched(LOADER)
    settings = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
    assert {f"{PLACE} {each}" for each in settings} <= set(levers)
    assert where[f"{PLACE} num_workers"] == MADE
    options = {f"{PLACE} num_workers": 1, f"{PLACE} prefetch_factor": 8}
    made, levers, _ = watched(LOADER, options | {f"{PLACE} persistent_workers": True})
    assert (made.num_workers, made.prefetch_factor, made.persistent_workers) == (1, 8, True)
    assert levers[f"{PLACE} prefetch_factor"].now == 8
    assert [batch[0].tolist() for batch in made] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_loader_without_workers_prefetches_nothing() -> None:
    made, levers, _ = watched(LOADER, {f"{PLACE} prefetch_factor": 8})
    assert (made.num_workers, made.prefetch_factor) == (0, None)
    assert not levers[f"{PLACE} prefetch_factor"].applies({f"{PLACE} num_workers": 0})


def test_pinned_memory_needs_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{PLACE} pin_memory"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    _, levers, _ = watched(LOADER)
    assert "a card" in levers[name].missing
    with pytest.raises(SettingError, match="True needs a card"):
        set_levers(list(levers.values()), {name: True})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    made, levers, _ = watched(LOADER, {name: True})
    assert made.pin_memory
    assert not levers[name].missing


OWN = script(f"import hotloop\nmade = hotloop.make_vec({ENV!r}, 4, backend='serial')\n")
THEIRS = script(f"import gymnasium\nmade = gymnasium.make_vec({ENV!r}, 2, 'sync')\n")
OWN_PLACE, THEIR_PLACE = "hotloop.make_vec users.py:2", "gymnasium.make_vec users.py:2"


def test_a_vector_env_of_hotloop_is_made_with_the_options() -> None:
    made, levers, where = watched(OWN)
    made.close()
    assert {f"{OWN_PLACE} {each}" for each in ("backend", "num_workers", "copy")} <= set(levers)
    assert where[f"{OWN_PLACE} backend"] == MADE
    assert not levers[f"{OWN_PLACE} num_workers"].applies({f"{OWN_PLACE} backend": "serial"})
    options = {f"{OWN_PLACE} backend": "process", f"{OWN_PLACE} num_workers": 2}
    made, levers, _ = watched(OWN, options | {f"{OWN_PLACE} copy": False})
    try:
        assert isinstance(made, hotloop.envs.ProcessVectorEnv)
        assert (made.num_workers, made.copy) == (2, False)
        assert levers[f"{OWN_PLACE} backend"].now == "process"
    finally:
        made.close()


def test_a_vector_env_of_gymnasium_is_made_with_the_options() -> None:
    made, levers, _ = watched(THEIRS)
    made.close()
    assert isinstance(made.unwrapped, gymnasium.vector.SyncVectorEnv)
    assert levers[f"{THEIR_PLACE} vectorization_mode"].now == "sync"
    options = {f"{THEIR_PLACE} vectorization_mode": "async", f"{THEIR_PLACE} copy": False}
    made, levers, _ = watched(THEIRS, options)
    try:
        assert isinstance(made.unwrapped, gymnasium.vector.AsyncVectorEnv)
        assert levers[f"{THEIR_PLACE} copy"].now is False
        first, _ = made.reset(seed=0)
        kept = np.array(first)
        second = made.step(made.action_space.sample())[0]
        assert np.shares_memory(first, second)
        assert not np.array_equal(kept, first)
    finally:
        made.close()


def test_what_a_library_makes_for_itself_is_no_lever() -> None:
    def make() -> Any:
        return PPO(PPOSettings(num_envs=2, fragment_steps=4)).close()

    _, levers, _ = watched(make)
    assert not [name for name in levers if "make_vec" in name]


def test_afterwards_functions_and_classes_are_as_before() -> None:
    before = (gymnasium.make_vec, hotloop.make_vec, torch.utils.data.DataLoader.__init__)
    watched(LOADER)
    after = (gymnasium.make_vec, hotloop.make_vec, torch.utils.data.DataLoader.__init__)
    assert after == before


# --- what a loop has of its own --------------------------------------------------------------


def test_a_lever_of_the_loop_is_not_taken_for_one_of_a_library(training: Training) -> None:
    own = Lever("torch_threads", (1, 2), now=1)
    loop = Loop(training.iterate, state=[training], levers=[own])
    with Libraries({}, own_process=False) as libraries:
        (found,) = [each for each in libraries.levers(loop) if each.name == "torch_threads"]
        assert found is own
        assert libraries.where(found) == SETTING


def test_a_setting_under_levers_is_refused() -> None:
    loop = Loop(lambda: 1, levers=[Lever("size", (1, 2), now=1)])
    with (
        levers_for({"size": 2}) as set_for,
        pytest.raises(SettingError, match="expected it under `settings`, got 2"),
    ):
        set_for(loop)
    with levers_for({"size": 1}) as set_for:
        set_for(loop)  # it has that already


def test_a_live_lever_is_set_and_known_as_one() -> None:
    found: list[int] = []
    loop = Loop(lambda: 1, levers=[Lever("size", (1, 2), now=1, apply=found.append)])
    with levers_for({"size": 2}) as set_for:
        set_for(loop)
    with Libraries({}) as libraries:
        assert libraries.where(libraries.levers(loop)[0]) == LIVE
    assert found == [2]


def test_a_proxy_of_what_is_gone_does_not_hinder_the_check() -> None:
    class Gone:
        pass

    weight = torch.nn.Parameter(torch.ones(3))
    proxies = [weakref.proxy(Gone())]  # as torch.compile leaves them
    found = prints_of(Loop(lambda: 1))
    assert any(each["shape"] == [3] and each["size"] == 1.0 for each in found)
    del weight, proxies
