"""What a state holds: paths, shapes, initial values, and refusals before the first step."""

from types import MappingProxyType

import numpy as np
import pytest
import tiny_models as tiny
import torch
from tiny_models import AGE, CASES, MOOD, STAGE, TIES, sir

from hotloop.errors import CapacityError, ConfigError, HotloopError, PathError
from hotloop.sim import Column, Executor, FromColumn, FromEdges, Record, Runner
from hotloop.sim.draws import INITIAL
from hotloop.sim.settings import Settings


class Data:
    """A loaded population."""

    name, periods, stages = "town", (), None
    size = tiny.N
    columns = MappingProxyType({"age": np.arange(tiny.N, dtype=np.int64) % 6})
    edges = tiny.ring()


def state_of(model=None, **settings):
    return Executor(model or sir(), **settings).init().state


def loaded(model, **settings):
    runner = Runner(model, Settings(torch.device("cpu"), **settings), load=Data)
    runner.init()
    return runner.state


def people(**columns):
    given = {"stage": 0, "age": 0, **columns}
    return {"populations": {"people": given}}


def test_values_are_found_by_path_and_by_nesting() -> None:
    state = state_of()
    assert state["agents"]["people"]["stage"] is state[STAGE]
    assert set(state["agents/people"]) == {"stage", "age"}
    assert list(state["environment"]) == ["cases", "mood"]
    assert state["networks"]["ties"].num_edges == 2 * tiny.N
    assert dict(state["objects"]) == {}
    assert state["current_step"] == 0
    assert "agents" in state
    assert "agent" not in state


@pytest.mark.parametrize(
    ("path", "near"),
    [("agents/people/stag", STAGE), ("environment/case", CASES), ("networks/tie", TIES)],
)
def test_a_wrong_path_names_the_nearest(path, near) -> None:
    with pytest.raises(PathError, match=f"did you mean '{near}'"):
        state_of()[path]


def test_columns_are_small_and_in_their_shape() -> None:
    state = state_of(replicates=4)
    assert state[STAGE].dtype == torch.uint8
    assert state[AGE].dtype == torch.int32
    assert state[STAGE].shape == state[AGE].shape == (4, tiny.N)
    assert state[AGE].stride(0) == 0  # what nobody writes is held once
    assert state[MOOD].shape == (4,)


def test_functions_see_the_data_and_what_is_there_already() -> None:
    def twice(data, state):
        return state[AGE].long() * 2 + data.columns["age"][0]

    def lucky(data, state):
        return state.uniform(INITIAL, "people") < 0.3

    model = sir(
        **people(age=Column(FromColumn("age"), torch.uint8, 0, 5), double=twice, lucky=lucky),
        sizes={},
        networks={"ties": FromEdges()},
    )
    state = loaded(model, replicates=3, seed=7)
    assert torch.equal(state["agents/people/double"], 2 * state[AGE].long())
    assert state["networks/ties"].num_agents == tiny.N
    assert state["agents/people/lucky"].dtype == torch.bool
    of_path = "agents/people/lucky"
    assert torch.equal(loaded(model, seed=9)[of_path], state[of_path][2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (people(age=np.zeros(7)), r"people/age: expected a value for each of 60 agents"),
        (people(age=np.full(tiny.N, np.nan)), "agents/people/age: NaN at index 0"),
        (
            people(age=Column(np.arange(tiny.N) - 3, low=0)),
            "expected at least 0, got -3 at index 0",
        ),
        (people(stage=Column(9, low=0, high=4)), "expected 0 to 4, got 9"),
        (people(age=Column(300, torch.uint8)), "300 to 300 do not fit torch.uint8"),
        (people(age=Column(1.5, torch.uint8)), "cannot be kept as torch.uint8"),
        (people(age=np.array(["a"] * tiny.N)), "expected numbers"),
        (people(age=FromColumn("age")), "no column 'age'; no population is loaded"),
        (
            people(age=lambda data, state: state["agents/people/agee"]),
            "not there yet.*did you mean",
        ),
        ({"sizes": {}}, "population 'people' has no size"),
        ({"sizes": {"people": 0}}, "at least one agent, got 0"),
        ({"networks": {"ties": FromEdges()}}, "edges of the loaded population"),
        ({"networks": {"ties": tiny.ring(61)}}, "60"),
        ({"networks": {"ties": "ring"}}, "expected a network or edges"),
    ],
)
def test_bad_values_are_refused_before_the_first_step(changes, words) -> None:
    with pytest.raises(HotloopError, match=words):
        state_of(sir(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_steps_per_episode": 0}, "at least 1"),
        ({"sizes": {"peple": 3}}, "did you mean 'people'"),
        ({"substeps": ()}, "no substeps"),
        ({"populations": {}}, "no population"),
        ({"environment": {"case": 0.0, "mood": 0.0}}, "did you mean 'environment/case'"),
        ({"substeps": (tiny.Recover(), tiny.Recover())}, "share a name"),
    ],
)
def test_a_model_whose_parts_do_not_fit_is_refused(changes, words) -> None:
    with pytest.raises(ConfigError, match=words):
        sir(**changes)


def test_too_little_memory_is_reported_before_any_is_allocated() -> None:
    with pytest.raises(CapacityError) as caught:
        state_of(replicates=10**10, record=Record(agents=True))
    told = str(caught.value)
    for words in (
        "out of memory",
        "about",
        "free",
        "fewer replicates",
        "snapshots",
        "smaller dtypes",
    ):
        assert words in told
    huge = sir(sizes={"people": 10**13}, populations={"people": {"stage": 0, "age": 0}})
    with pytest.raises(CapacityError, match="fewer agents"):
        state_of(huge)
