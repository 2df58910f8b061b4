"""Models written in YAML: initial values, and the functions of each substep.

    simulation_metadata: {num_agents: 1000, num_steps_per_episode: 50}
    state:
      agents:
        people:
          number: ${simulation_metadata.num_agents}
          properties: {wealth: {dtype: float, value: 1.0}}
      environment: {total_wealth: {series: true}}
    substeps:
      "0":
        name: trade
        active_agents: [people]
        transition:
          earn: {generator: "my_model:earn", input_variables: {wealth: agents/people/wealth},
                 output_variables: [wealth]}

A generator names a function or class in a module that can be imported or is beside the file:
loading a model runs that module. Load only files that you trust.
"""

from functools import partial
from pathlib import Path

import torch

from hotloop.errors import ConfigError, nearest
from hotloop.sim.config_file import Section, read_config
from hotloop.sim.config_substep import ConfigSubstep, Function
from hotloop.sim.config_values import (
    FUNCTION_FIELDS,
    make,
    network_sections,
    read_arguments,
    read_network,
    read_properties,
)
from hotloop.sim.model import Model

_SECTIONS = ("simulation_metadata", "state", "substeps")
# `device`, `calibration` and `num_episodes` are only shown in `runner.config`.
_METADATA = (
    "name",
    "description",
    "num_agents",
    "num_steps_per_episode",
    "num_episodes",
    "num_substeps_per_step",
    "device",
    "calibration",
)


def load_model(path: str | Path) -> Model:
    """Load the model of a YAML file, or of a folder that holds one.

    Raises: ConfigError for any error in the file, with its line and place.
    """
    file = read_config(_file_at(Path(path)), _SECTIONS)
    root = Section(file, "", file.data)
    root.check_keys(_SECTIONS, ("state", "substeps"))
    metadata, state = root.section("simulation_metadata"), root.section("state")
    used = [p.removeprefix("simulation_metadata.") for p in file.referenced]
    metadata.check_keys((*_METADATA, *(p.partition(".")[0] for p in used)))
    state.check_keys(("agents", "environment", "network", "objects"), ("agents",))
    steps = metadata.whole_number("num_steps_per_episode")
    if steps is None:
        raise metadata.error("", "the field 'num_steps_per_episode' is missing")
    agents = state.section("agents")
    for _, population in agents.sections():
        population.check_keys(("number", "properties", "description"))
    numbers = {name: p.whole_number("number") for name, p in agents.sections()}
    paths = _paths(state)
    substeps = _substeps(root.section("substeps"), list(agents.data), paths)
    count = metadata.whole_number("num_substeps_per_step")
    if count not in (None, len(substeps)):
        raise metadata.error(
            "num_substeps_per_step", f"is {count}, and there are {len(substeps)} substeps"
        )
    try:
        return Model(
            name=str(metadata.get("name", file.path.stem)),
            substeps=substeps,
            populations={n: read_properties(p.section("properties")) for n, p in agents.sections()},
            sizes={name: number for name, number in numbers.items() if number is not None},
            environment=read_properties(state.section("environment"), of_agents=False),
            networks={name: read_network(n) for name, n in network_sections(state)},
            objects={
                name: read_properties(thing.section("properties"), of_agents=False)
                for name, thing in state.section("objects").sections()
            },
            num_steps_per_episode=steps,
            config=file.data,
        )
    except ConfigError as error:
        if str(error).startswith(str(file.path)):
            raise
        raise file.error("", str(error)) from None


def _file_at(path: Path) -> Path:
    if not path.is_dir():
        if path.exists():
            return path
        near = nearest(path.name, [p.name for p in path.parent.glob("*.y*ml")])
        raise ConfigError(f"{path}: no such model file{near}")
    found = sorted([*path.glob("*.yaml"), *path.glob("*.yml")])
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise ConfigError(f"{path}: expected a folder with one YAML file; it has {names}")
    return found[0]


def _paths(state: Section) -> list[str]:
    things = state.section("objects")
    for _, thing in things.sections():
        thing.check_keys(("properties", "description"))
    return [
        *(
            f"agents/{name}/{column}"
            for name, population in state.section("agents").sections()
            for column in population.section("properties").data
        ),
        *(f"environment/{name}" for name in state.section("environment").data),
        *(f"networks/{name}" for name, _ in network_sections(state)),
        *(
            f"objects/{name}/{value}"
            for name, thing in things.sections()
            for value in thing.section("properties").data
        ),
    ]


# --- substeps ----------------------------------------------------------------------------------


def _substeps(section: Section, populations: list[str], paths: list[str]) -> list[ConfigSubstep]:
    if not section.data:
        raise section.error("", "expected at least one substep")
    order = sorted(
        section.data, key=lambda key: (not key.isdigit(), int(key) if key.isdigit() else 0)
    )
    for number, key in enumerate(order):
        if key != str(number):
            raise section.error(key, f"substeps are numbered from 0; expected {str(number)!r}")
    return [_substep(section.section(key), populations, paths) for key in order]


def _substep(spec: Section, populations: list[str], paths: list[str]) -> ConfigSubstep:
    spec.check_keys(
        ("name", "description", "active_agents", "observation", "policy", "transition", "reward"),
        ("transition",),
    )
    if spec.get("reward") is not None:
        raise spec.error("reward", "rewards are given by an env, not by a model; leave it out")
    active = spec.get("active_agents", [])
    for name in active if isinstance(active, list) else [active]:
        if name not in populations:
            hint = nearest(str(name), populations)
            raise spec.error("active_agents", f"no population {name!r}{hint}")
    learnable: dict[str, torch.Tensor] = {}
    read = partial(_functions, populations=populations, paths=paths, learnable=learnable)
    transition = read(spec.section("transition"), written=True)
    targets = [path for function in transition for path in function.outputs.values()]
    twice = next((path for path in targets if targets.count(path) > 1), None)
    if twice is not None:
        raise spec.error("transition", f"{twice!r} is the output of two functions")
    return ConfigSubstep(
        str(spec.get("name", f"substep_{spec.place.rpartition('.')[2]}")),
        active if isinstance(active, list) else [active],
        read(spec.section("observation")),
        read(spec.section("policy")),
        transition,
        learnable,
    )


def _functions(
    section: Section,
    *,
    populations: list[str],
    paths: list[str],
    learnable: dict[str, torch.Tensor],
    written: bool = False,
) -> list[Function]:
    """Read the functions below `section`, or one level deeper, below names of populations."""
    specs: list[tuple[str, Section]] = []
    for name, spec in section.sections():
        specs += list(spec.sections()) if name in populations else [(name, spec)]
    return [_function(name, spec, paths, learnable, written) for name, spec in specs]


def _function(
    name: str,
    spec: Section,
    paths: list[str],
    learnable: dict[str, torch.Tensor],
    written: bool,
) -> Function:
    spec.check_keys(FUNCTION_FIELDS, ("generator",))
    inputs = {key: str(path) for key, path in spec.section("input_variables").data.items()}
    for key, path in inputs.items():
        if path not in paths:
            raise spec.error(
                f"input_variables.{key}", f"no such path {path!r}{nearest(path, paths)}"
            )
    outputs = {}
    for output in spec.get("output_variables", []):
        target = inputs.get(output, output)
        if written and target not in paths:
            hint = nearest(str(output), [*inputs, *paths])
            raise spec.error(
                "output_variables",
                f"{output!r} is neither an input variable, whose place it takes, nor a path{hint}",
            )
        outputs[str(output)] = target
    _, parameters = read_arguments(spec.section("arguments"))
    made = make(spec, positional=2 + (spec.place.split(".")[2] != "observation"), extra=parameters)
    function = Function(name, made, inputs, outputs, {}, tuple(parameters))
    learnable.update({function.parameter_key(key): value for key, value in parameters.items()})
    return function
