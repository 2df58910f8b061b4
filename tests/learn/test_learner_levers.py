"""Levers of learners: each is a setting, and a learner that is made with another option differs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from hotloop.envs import ProcessVectorEnv, SerialVectorEnv
from hotloop.learn import levers
from hotloop.learn.algorithms import ALGORITHMS, learner_type
from hotloop.learn.apex import Apex, ApexSettings
from hotloop.learn.impala import IMPALA, IMPALASettings
from hotloop.learn.levers import levers_of
from hotloop.learn.optimiser_step import CompiledStep, PlainStep
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.learn.settings import LearnerSettings
from hotloop.loop.lever import Lever

SMALL = PPOSettings(num_envs=4, fragment_steps=8, epochs=2, seed=3)
HERE: dict[str, Any] = {"backend": "serial", "seed": 3}
APEX = ApexSettings(**HERE, num_envs=4, fragment_steps=8, learn_after=32, batch_size=16)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def named(settings: LearnerSettings, *, synchronous: bool = True) -> dict[str, Lever]:
    return {lever.name: lever for lever in levers_of(settings, synchronous)}


def learned(settings: PPOSettings, iterations: int = 3) -> np.ndarray:
    with closing(PPO(settings)) as learner:
        for _ in range(iterations):
            learner.iterate()
        parameters: np.ndarray = learner.policy.flat.detach().numpy().copy()
    return parameters


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_lever_is_a_setting_whose_options_a_learner_takes(algorithm: str) -> None:
    kind = learner_type(algorithm)
    settings = kind.settings_type()
    found = named(settings, synchronous=kind.synchronous)
    assert set(found) <= {field.name for field in fields(settings)}
    assert {"copy", "precision", "compiled", "transfer", "torch_threads", "num_workers"} <= set(
        found
    )
    for name, lever in found.items():
        for option in lever.options:
            beside = {"backend": "process"} if name in ("num_workers", "double_buffer") else {}
            assert getattr(replace(settings, **{name: option, **beside}), name) == option


def test_every_factor_belongs_to_a_learner() -> None:
    known = {
        field.name for each in ALGORITHMS for field in fields(learner_type(each).settings_type)
    }
    assert set(levers._FACTORS) <= known


# --- where envs are stepped --------------------------------------------------------------------


def test_the_backend_and_its_workers_step_the_envs() -> None:
    assert {"serial", "process"} == set(named(SMALL)["backend"].options)
    with closing(PPO(SMALL)) as learner:
        assert isinstance(learner.envs, SerialVectorEnv)
    with closing(PPO(replace(SMALL, backend="process", num_workers=2))) as learner:
        assert isinstance(learner.envs, ProcessVectorEnv)
        assert learner.envs.num_workers == 2


def test_workers_act_only_where_there_are_some() -> None:
    lever = named(SMALL)["num_workers"]
    assert lever.applies({"backend": "process"})
    assert not lever.applies({"backend": "serial"})


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_without_copies_the_same_is_learned(backend: str) -> None:
    workers = {"num_workers": 2} if backend == "process" else {}
    settings = replace(SMALL, backend=backend, **workers)
    with closing(PPO(replace(settings, copy=False))) as learner:
        assert learner.envs.copy is False
    np.testing.assert_array_equal(learned(replace(settings, copy=False)), learned(settings))


def test_double_buffering_steps_halves_without_copies_too() -> None:
    settings = replace(SMALL, backend="process", num_workers=2, double_buffer=True)
    with closing(PPO(settings)) as learner:
        assert learner.collector.double_buffer  # type: ignore[union-attr]
        assert learner.envs.splits == 2
    np.testing.assert_array_equal(learned(replace(settings, copy=False)), learned(settings))


@pytest.mark.long
def test_actors_are_as_many_as_workers_and_change_what_is_learned() -> None:
    settings = IMPALASettings(num_envs=4, fragment_steps=4, num_workers=1)
    lever = named(settings, synchronous=False)["num_workers"]
    assert lever.keeps_result is False
    assert 2 in lever.options
    before = len(psutil.Process().children())
    with closing(IMPALA(replace(settings, num_workers=2))) as learner:
        learner.iterate()
        assert len(psutil.Process().children()) >= before + 2
        assert learner.settings.num_actors == 2


# --- how an update is computed -----------------------------------------------------------------


def test_threads_of_torch_are_set() -> None:
    with closing(PPO(replace(SMALL, torch_threads=2))):
        assert torch.get_num_threads() == 2
    with closing(PPO(SMALL)):
        assert torch.get_num_threads() == 1


def test_one_core_has_no_threads_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levers, "whole_cores", lambda: 1)
    assert named(SMALL)["torch_threads"].missing == "more than one core"
    monkeypatch.setattr(levers, "whole_cores", lambda: 4)
    lever = named(SMALL)["torch_threads"]
    assert (lever.options, lever.missing) == ((1, 2, 4), "")


def test_half_the_bytes_learn_otherwise() -> None:
    assert named(SMALL)["precision"].keeps_result is False
    assert not np.array_equal(learned(replace(SMALL, precision="bfloat16")), learned(SMALL))


def test_a_step_is_compiled_where_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: "/usr/bin/c++")
    assert named(SMALL)["compiled"].options == ("plain", "compile")
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda loss: compiled.append(loss) or loss)
    with closing(PPO(replace(SMALL, compiled="compile"))) as learner:
        assert isinstance(learner.step, CompiledStep)
        assert len(compiled) == 1
    with closing(PPO(SMALL)) as learner:
        assert type(learner.step) is PlainStep
    monkeypatch.setattr("shutil.which", lambda _name: None)
    lever = named(SMALL)["compiled"]
    assert lever.options == ("plain",)
    assert "compiler" in lever.missing


def test_pinned_memory_and_graphs_need_a_card() -> None:
    lever = named(SMALL)["transfer"]
    assert (lever.options, lever.missing) == (("plain",), "a card to learn on (device=cuda)")
    on_card = named(replace(SMALL, device="cuda"))
    assert (on_card["transfer"].options, on_card["transfer"].missing) == (("plain", "pinned"), "")
    assert "graph" in on_card["compiled"].options


# --- what is learned from -------------------------------------------------------------------


def steps_of_optimiser(settings: ApexSettings, iterations: int = 12) -> int:
    with closing(Apex(settings)) as learner:
        for _ in range(iterations):
            learner.iterate()
        return learner.counts.optimizer_steps


def test_the_replay_ratio_says_how_much_is_learned_of_each_step() -> None:
    lever = named(APEX, synchronous=False)["replay_ratio"]
    assert lever.keeps_result is False
    assert {2.0, 8.0} <= set(lever.options)
    half, same, double = (steps_of_optimiser(replace(APEX, replay_ratio=r)) for r in (2, 4, 8))
    assert 0 < half < same < double


@pytest.mark.parametrize(
    ("name", "option", "measured"),
    [
        ("num_envs", 8, lambda learner: learner.settings.batch_steps),
        ("fragment_steps", 16, lambda learner: learner.iterate()),
        ("minibatches", 2, lambda learner: learner.batches),
        ("epochs", 4, lambda learner: learner.batches),
    ],
)
def test_the_shape_of_an_update_follows_the_option(
    name: str, option: int, measured: Callable[[PPO], int]
) -> None:
    assert named(SMALL)[name].keeps_result is False
    found = []
    for settings in (SMALL, replace(SMALL, **{name: option})):
        with closing(PPO(settings)) as learner:
            found.append(measured(learner))
    assert found[1] == 2 * found[0]


def test_an_update_of_more_fragments_takes_more_steps() -> None:
    settings = IMPALASettings(**HERE, num_envs=4, fragment_steps=4)
    assert {2, 4} <= set(named(settings, synchronous=False)["batch_fragments"].options)
    assert [_steps_of_iteration(settings, n) for n in (1, 2)] == [16, 32]


def _steps_of_iteration(settings: IMPALASettings, fragments: int) -> int:
    with closing(IMPALA(replace(settings, batch_fragments=fragments))) as learner:
        steps: Sequence[int] = [learner.iterate()]
    return steps[0]
