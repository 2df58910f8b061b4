"""From a model and a population to a run; and the tutorial, in Python and in YAML."""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
import torch
from tiny_models import growth, sir

from hotloop.errors import ConfigError, DeviceError, SettingError
from hotloop.populations import PopulationData
from hotloop.sim import DataLoader, Executor, FromColumn, FromEdges, LoadPopulation, Series

EXAMPLES = Path(__file__).parents[2] / "examples"


def town() -> PopulationData:
    age = (np.arange(tiny.N) % 6).astype(np.uint8)
    return PopulationData("town", {"age": age}, tiny.ring().astype(np.int32))


def loaded_model():
    return sir(
        sizes={},
        populations={"people": {"stage": (np.arange(tiny.N) % 9 == 0), "age": FromColumn("age")}},
        networks={"ties": FromEdges()},
        substeps=(tiny.Infect(beta=0.2, weeks=torch.ones(3, 1)),),
        environment={"cases": Series(), "mood": 0.0},
    )


@pytest.mark.parametrize(
    "given",
    [
        lambda model: {"data_loader": DataLoader(model, LoadPopulation(town()))},
        lambda model: {"pop_loader": LoadPopulation(town())},
        lambda model: {"data_loader": town()},
    ],
)
def test_a_population_is_loaded_from_whatever_is_given(given) -> None:
    model = loaded_model()
    runner = Executor(model=model, **given(model)).runner
    runner.init()
    assert runner.state.size("people") == tiny.N
    assert runner.state["agents/people/age"].dtype == torch.uint8
    assert runner.config["simulation_metadata"]["num_agents"] == tiny.N


@pytest.mark.parametrize("attributes", [{"MODEL": growth()}, {"model": growth}])
def test_a_module_is_taken_for_its_model(attributes) -> None:
    module = types.ModuleType("some_model")
    vars(module).update(attributes)
    runner = Executor(module).execute()
    assert runner.state.step == 10
    assert runner.config["simulation_metadata"]["name"] == "growth"


def test_what_holds_no_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="module with MODEL or model"):
        Executor(types.ModuleType("empty"))
    with pytest.raises(ConfigError, match="no such model file"):
        Executor("nowhere.yaml")


@pytest.mark.parametrize("device", ["cuda:7", "cudda", "mps", "meta"])
def test_a_device_that_is_not_there_is_refused(device) -> None:
    with pytest.raises(DeviceError, match=r"available: 'cpu'.*or 'auto'"):
        Executor(sir(), device=device)


def test_the_device_is_found() -> None:
    runner = Executor(sir()).init()
    assert runner.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert all(slot.now.device == runner.device for slot in runner.state.slots.values())


@pytest.mark.parametrize(
    "settings",
    [
        {"replicates": 0},
        {"threads": 0},
        {"precision": "half"},
        {"active_set": "some"},
        {"num_steps": 0},
        {"data_loader": 5, "pop_loader": 5},
        {"capture": True, "device": "cpu"},
    ],
)
def test_invalid_settings_are_refused(settings) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        Executor(sir(), **settings)


def test_importing_hotloop_loads_no_torch() -> None:
    code = "import sys, hotloop, hotloop.sim; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_torch_is_one_sentence() -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "import hotloop.sim"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "hotloop.sim needs torch: pip install 'hotloop[torch]'" in done.stderr


# --- the tutorial --------------------------------------------------------------------------------

TWIN = """
simulation_metadata: {name: sir, num_agents: 5000, num_steps_per_episode: 100}
state:
  agents:
    people:
      number: ${simulation_metadata.num_agents}
      properties:
        stage:
          dtype: uint8
          initialization_function: {generator: "sir_functions:every", arguments: {one_in: 500}}
  environment: {cases: {series: true}}
  network: {agent_agent: {friends: {generator: "sir_functions:friends"}}}
substeps:
  0:
    name: infect
    active_agents: [people]
    observation:
      people:
        look:
          generator: "sir_functions:look"
          input_variables: {stage: agents/people/stage, friends: networks/friends}
          output_variables: [sick_friends]
    transition:
      infect:
        generator: "sir_functions:Infect"
        arguments: {beta: {learnable: true, value: 0.09}}
        input_variables: {stage: agents/people/stage, cases: environment/cases}
        output_variables: [stage, cases]
  1:
    name: recover
    transition:
      recover:
        generator: "sir_functions:recover"
        arguments: {gamma: {name: gamma, learnable: true, value: 0.1, shape: []}}
        input_variables: {stage: agents/people/stage}
        output_variables: [stage]
"""
FUNCTIONS = """
import importlib
import numpy as np
import torch
tutorial = importlib.import_module("14_sir")

def every(data, state, one_in):
    return np.arange(state.size("people")) % one_in == 0

def friends(data, state):
    return tutorial.small_world(np.random.default_rng(0))

def look(state, inputs):
    return {"sick_friends": inputs["friends"].sum_from((inputs["stage"] == 1).int())}

class Infect:
    def __call__(self, state, action, inputs, beta):
        risk = 1 - (1 - beta) ** action["sick_friends"]
        newly = (inputs["stage"] == 0) & (state.uniform(0, "people") < risk)
        return {"stage": torch.where(newly, 1, inputs["stage"]), "cases": newly.sum(-1)}

def recover(state, action, inputs, gamma):
    well = (inputs["stage"] == 1) & (state.uniform(1, "people") < gamma)
    return {"stage": torch.where(well, 2, inputs["stage"])}
"""


def test_the_tutorial_is_short_and_equals_its_yaml_twin(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    tutorial = importlib.import_module("14_sir")
    assert len((EXAMPLES / "14_sir.py").read_text().splitlines()) < 60
    (tmp_path / "sir.yaml").write_text(TWIN)
    (tmp_path / "sir_functions.py").write_text(FUNCTIONS)
    python, twin = Executor(tutorial.MODEL).init(), Executor(tmp_path).init()
    assert [n for n, _ in python.named_parameters()] == [n for n, _ in twin.named_parameters()]
    for runner in (python, twin):
        runner.step(45)
    for path in ("agents/people/stage", "environment/cases"):
        assert torch.equal(python.state[path], twin.state[path])
    cases = python.state["environment/cases"]
    assert 300 < cases.sum() < 5000
    assert cases[25:45].mean() > 2 * cases[:10].mean()  # it grows
    assert twin.config["state"]["agents"]["people"]["number"] == 5000
