"""Models in YAML: what a file can hold, and errors with their place in it."""

import pytest
import torch

from hotloop.errors import ConfigError, SubstepError
from hotloop.sim import Executor, load_model

FUNCTIONS = """
import torch

def grow(state, action, inputs, rate, by=1.0):
    return {"size": inputs["size"] * rate.reshape(-1)[0] * by}

def eat(state, observation, inputs):
    return {"eaten": observation["hunger"] * 2}

def hunger(state, inputs, scale):
    return {"hunger": inputs["size"].sum(-1) * scale}

def digest(state, action, inputs):
    return {"environment/food": inputs["food"] - action["eaten"], "meals": action["eaten"]}

def forgetful(state, action, inputs):
    return {}

def start(data, state, first):
    return torch.arange(state.size("cells")) + first

NUMBER = 3

class Grow:
    def __init__(self, by):
        self.by = by

    def __call__(self, state, action, inputs):
        return {"size": inputs["size"] * self.by}
"""
MODEL = """
simulation_metadata:
  name: cells
  num_agents: 4
  num_steps_per_episode: 5
  num_substeps_per_step: 2
  GROWTH: 1.5
state:
  agents:
    cells:
      number: ${simulation_metadata.num_agents}
      properties:
        size: {dtype: float, value: 2, shape: ["${simulation_metadata.num_agents}", 1]}
        rank:
          dtype: uint8
          initialization_function: {generator: "cells:start", arguments: {first: {value: 3}}}
  environment:
    food: {value: 100, dtype: float32}
    walls: {value: 1, shape: [2, 3], dtype: int}
    meals: {series: true, dtype: float64}
  network: {near: {type: random, arguments: {degree: 2}}}
  objects: {stones: {properties: {weight: {value: [1.0, 2.5]}}}}
substeps:
  0:
    name: grow
    description: a mug of ${simulation_metadata.name} at ${simulation_metadata.GROWTH}
    active_agents: [cells]
    observation: {cells: null}
    policy: {cells: null}
    transition:
      bigger:
        generator: "cells:grow"
        arguments:
          rate: {name: rate, learnable: true, shape: [3, 1], value: "${simulation_metadata.GROWTH}"}
        input_variables: {size: agents/cells/size}
        output_variables: [size]
  1:
    name: feed
    active_agents: [cells]
    observation:
      cells:
        look:
          generator: "cells:hunger"
          arguments: {scale: 0.5}
          input_variables: {size: agents/cells/size}
          output_variables: [hunger]
    policy: {cells: {eat: {generator: "cells:eat", output_variables: [eaten]}}}
    transition:
      digest:
        generator: "cells:digest"
        input_variables: {food: environment/food, meals: environment/meals}
        output_variables: [environment/food, meals]
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "cells.py").write_text(FUNCTIONS)

    def written(old: str = "", new: str = ""):
        assert old in MODEL
        path = tmp_path / "model.yaml"
        path.write_text(MODEL.replace(old, new, 1))
        return path

    return written


@pytest.mark.parametrize("replicates", [None, 2])
def test_a_file_is_a_model(write, replicates) -> None:
    runner = Executor(write().parent, replicates=replicates).init()
    path = "initializer.transition_function.0.bigger.learnable_args.rate"
    (name, rate), *rest = runner.named_parameters()
    assert (name, rate.shape, rest) == (path, (3, 1), [])
    runner.step(2)
    state = runner.state
    lead = () if replicates is None else (replicates,)
    assert state["agents/cells/size"].shape == (*lead, 4)
    assert (state["agents/cells/size"] == 4.5).all()
    assert state["environment/food"].flatten()[0] == 100 - 4 * (3 + 4.5)
    assert state["environment/meals"].reshape(-1, 5)[0].tolist() == [12, 18, 0, 0, 0]
    assert state["agents/cells/rank"].reshape(-1, 4)[0].tolist() == [3, 4, 5, 6]
    assert state["environment/walls"].shape == (*lead, 2, 3)
    assert state["objects/stones/weight"].dtype == torch.float32
    assert state["networks/near"].degree == 2
    assert runner.config["substeps"]["0"]["description"] == "a mug of cells at 1.5"


def test_classes_are_made_once_with_their_arguments(write) -> None:
    path = write('generator: "cells:grow"', 'generator: "cells:Grow"')
    text = path.read_text()
    start, end = text.index("        arguments:\n          rate"), text.index("        input_var")
    path.write_text(text[:start] + "        arguments: {by: 3.0}\n" + text[end:])
    runner = Executor(path).init()
    runner.step(2)
    assert (runner.state["agents/cells/size"] == 18).all()


SLIPS = [
    ("simulation_metadata:\n", "simulation_metdata:\n", "did you mean 'simulation_metadata'"),
    ("num_steps_per_episode", "num_step_per_episode", ":5:.*did you mean 'num_steps_per_episode'"),
    ("  environment:", "  enviroment:", "state.enviroment: no such field; did you mean"),
    ("dtype: float,", "dtyp: float,", ":13: state.agents.cells.properties.size.dtyp: .*'dtype'"),
    ("dtype: float32", "dtype: flat32", "no such dtype 'flat32'; did you mean 'float32'"),
    ("number: $", "numbers: $", "did you mean 'number'"),
    ("active_agents: [cells]", "active_agents: [cell]", "did you mean 'cells'"),
    ("agents/cells/size}", "agents/cells/sise}", "did you mean 'agents/cells/size'"),
    ("output_variables: [size]", "output_variables: [siz]", "did you mean 'size'"),
    ("    transition:\n", "    transitions:\n", "did you mean 'transition'"),
    ('"cells:grow"', '"cells:grown"', "cells has no function 'grown'; did you mean 'grow'"),
    ('"cells:grow"', '"cels:grow"', "no module 'cels'.*did you mean 'cells'"),
    ('"cells:grow"', '"grow"', "expected 'module:Name'"),
    ('"cells:grow"', '"cells:NUMBER"', "has no function 'NUMBER'"),
    ("{scale: 0.5}", "{scala: 0.5}", "takes no argument 'scala'; did you mean 'scale'"),
    ("{first: {value: 3}}", "{fist: {value: 3}}", "did you mean 'first'"),
    ("learnable: true,", "learnabel: true,", "did you mean 'learnable'"),
    ("type: random", "type: randm", "no such network 'randm'; did you mean 'random'"),
    ("degree: 2", "degrees: 2", "did you mean 'degree'"),
    ("${simulation_metadata.name}", "${simulation_metadata.nam}", "leads nowhere; did you mean"),
    ("name: cells", "name: ${simulation_metadata.name}", "round in a circle"),
    ("GROWTH: 1.5", "GROWTH: 1.5\n  SHRINK: 2", "SHRINK: no such field"),
    ("num_agents: 4", "num_agents: 0", "expected a whole number of 1 or more, got 0"),
    ("num_substeps_per_step: 2", "num_substeps_per_step: 3", "is 3, and there are 2"),
    ("  num_agents: 4\n", "  num_agents: 4\n  num_agents: 5\n", ":5:.*given twice"),
    ("\n  1:\n", "\n  2:\n", "numbered from 0; expected '1'"),
    ("value: 2,", "value: two,", "expected a number"),
    ("value: 2,", "value: 2, from_column: age,", "expected one of value, from_column"),
    ("shape: [2, 3]", "shape: [2, x]", "does not fill the shape"),
    ("value: 2,", "value: 2, learnable: true,", "only an argument of a function"),
    ("state:\n", "state: [\n", "not YAML"),
    ("    name: feed", "    name: grow", "two substeps share a name"),
    ("    name: feed", "    name: feed\n    reward: {x: 1}", "rewards are given by an env"),
]


@pytest.mark.parametrize(("old", "new", "words"), SLIPS, ids=[new[:24] for _, new, _ in SLIPS])
def test_an_error_is_reported_with_its_place(write, old, new, words) -> None:
    path = write(old, new)
    with pytest.raises(ConfigError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "again", ["*a{}", '"${{state.objects.{}}}"', '"${{state.objects.{}.x}}${{state.objects.{}.y}}"']
)
def test_values_that_multiply_are_refused_at_once(write, again) -> None:
    lines = ["objects: {a0: &a0 {x: 1, y: 2}"]
    for number in range(1, 40):
        before = f"a{number - 1}"
        part = again.replace("a{}", before).replace("{{", "{").replace("}}", "}")
        part = part.replace("{}", before)
        lines.append(f"  a{number}: &a{number} {{x: {part}, y: {part}}}")
    path = write("objects: {", ",\n".join(lines) + ", ")
    with pytest.raises(ConfigError, match="stand for more than 100,000 values") as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_an_alias_within_itself_is_refused(write) -> None:
    path = write("objects: {stones:", "objects: &all {more: *all, stones:")
    with pytest.raises(ConfigError, match="contains itself"):
        load_model(path)


def test_tags_make_nothing(write) -> None:
    for tagged in ("!!python/object/apply:os.getcwd []", "!!python/name:os.getcwd x"):
        with pytest.raises(ConfigError, match="not YAML"):
            load_model(write("name: cells", f"name: {tagged}"))


@pytest.mark.parametrize("content", ["", "- 1\n- 2\n", "just words"])
def test_a_file_that_is_no_model(tmp_path, content) -> None:
    (tmp_path / "x.yaml").write_text(content)
    with pytest.raises(ConfigError):
        load_model(tmp_path)


def test_files_that_are_not_there(tmp_path, write) -> None:
    write()
    with pytest.raises(ConfigError, match=r"did you mean 'model.yaml'"):
        load_model(tmp_path / "modle.yaml")
    (tmp_path / "second.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"one YAML file; it has model.yaml, second.yaml"):
        load_model(tmp_path)


def test_a_function_that_forgets_an_output_is_refused(write) -> None:
    path = write('"cells:digest"', '"cells:forgetful"')
    with pytest.raises(SubstepError, match=r"'digest' did not return its output variable"):
        Executor(path).init().step()
