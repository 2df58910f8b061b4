"""A learner's state: put back, it learns the same; another is refused. The table of learners."""

import copy
import gc
import importlib
import subprocess
import sys
import weakref

import numpy as np
import pytest

from hotloop.built_in import BUILT_IN
from hotloop.errors import CheckpointError, TargetError
from hotloop.learn.algorithms import ALGORITHMS, learner_type, split_target
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.learn.state import expect_alike

SMALL = PPOSettings(num_envs=2, fragment_steps=8, epochs=2, hidden_size=4)
STATE = {
    "array": np.ones((2, 3), np.float32),
    "numbers": [1.0, 2.0],
    "parts": [{"a": 1}, {"a": 2}],
    "text": "PCG64",
    "count": 3,
    "share": 0.5,
    "flag": True,
    "none": None,
}


@pytest.mark.parametrize("before", [0, 2])
def test_a_state_put_back_learns_the_same(before):
    """Also one that was taken before the optimiser had any state."""
    learner, outcomes = PPO(SMALL), []
    for _ in range(before):
        learner.iterate()
    state = learner.state_dict()
    untouched = copy.deepcopy(state)
    for _ in range(2):
        learner.load_state_dict(state)
        learner.restart_envs()
        for _ in range(3):
            learner.iterate()
        outcomes.append(learner.state_dict())
    np.testing.assert_equal(outcomes[0], outcomes[1])
    np.testing.assert_equal(state, untouched)  # a copy, which learning leaves alone
    learner.close()


def test_a_fresh_optimiser_and_zeros_for_it_are_the_same():
    fresh, loaded = PPO(SMALL), PPO(SMALL)
    loaded.load_state_dict(fresh.state_dict())
    for learner in (fresh, loaded):
        learner.restart_envs()
        learner.iterate()
        learner.close()
    np.testing.assert_equal(fresh.state_dict(), loaded.state_dict())


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_of_a_closed_learner_nothing_stays_in_memory(algorithm):
    """The process knows its stages for ever, and not what they were put around."""
    kind = learner_type(algorithm)
    small = {"num_envs": 2, "fragment_steps": 8, "hidden_size": 4}
    learner = kind(kind.settings_type(**small))
    loop = learner.loop()
    loop.body()
    loop.close()
    gone = [weakref.ref(learner), weakref.ref(learner.policy)]
    del learner, loop
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_states_alike_are_accepted():
    expect_alike(copy.deepcopy(STATE), STATE, "state")
    expect_alike({**STATE, "numbers": []}, STATE, "state")
    expect_alike({**STATE, "numbers": [1, 2, 3.5]}, STATE, "state")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("array", np.ones((3, 2), np.float32)), ("array", np.ones((2, 3))), ("array", [1.0]),
        ("array", np.full((2, 3), np.nan, np.float32)), ("numbers", [np.inf]), ("numbers", ["x"]),
        ("numbers", {}), ("parts", [{"a": 1}]), ("parts", [{"a": 1}, {"b": 2}]), ("text", "MT"),
        ("text", 3), ("count", -1), ("count", 1.0), ("count", True), ("share", "x"),
        ("share", np.nan), ("flag", 1), ("none", 0), ("count", None),
    ],
)  # fmt: skip
def test_other_states_are_refused(name, value):
    with pytest.raises(CheckpointError, match=f"state: {name}: .*expected .* got"):
        expect_alike({**STATE, name: value}, STATE, "state")


def test_parts_that_are_missing_or_unknown_are_refused():
    for other in ({}, {**STATE, "more": 1}, [], None):
        with pytest.raises(CheckpointError, match="state: expected the parts array, numbers"):
            expect_alike(other, STATE, "state")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_table_of_learners_holds_what_it_says(algorithm):
    pytest.importorskip(ALGORITHMS[algorithm].partition(":")[0])
    found = learner_type(algorithm)
    assert found.settings_type.algorithm == algorithm
    place, _, name = BUILT_IN[algorithm].declared.partition(":")
    assert hasattr(importlib.import_module(place), name)


def test_targets_of_learners():
    assert split_target("ppo:CartPole-v1") == ("ppo", "CartPole-v1")
    assert split_target("ppo:package.module:Env-v0") == ("ppo", "package.module:Env-v0")
    for target, message in (
        ("pppo:X", "'pppo'; did you mean 'ppo'"),
        ("x:X", "'x'; there is 'ppo'"),
        ("ppo:", "such as ppo:CartPole-v1, got no such pair"),
        ("", "such as ppo:CartPole-v1"),
    ):
        with pytest.raises(TargetError, match=message):
            split_target(target)
    with pytest.raises(TargetError, match="did you mean 'impala'"):
        learner_type("impalla")


@pytest.mark.long
def test_an_unknown_learner_loads_no_torch():
    code = """
import sys
from hotloop.cli.main import main
assert main(["train", "pppo:CartPole-v1"]) == 1
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_worker_that_is_forked_while_interrupts_are_noted_is_ended_by_them():
    code = """
import os, signal
from hotloop.learn.interrupts import Interrupts
ready, begun = os.pipe()
with Interrupts() as interrupts:
    child = os.fork()
    if child == 0:
        os.write(begun, b"x")
        signal.alarm(60)  # nothing of it is left behind, whatever happens
        signal.pause()
        os._exit(3)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM
assert not interrupts.requested
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
