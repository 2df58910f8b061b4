"""The values of a model file: columns, constants, networks, and results of its generators."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from hotloop.errors import nearest
from hotloop.sim.config_file import Section
from hotloop.sim.generators import find_generator
from hotloop.sim.model import Column, FromColumn, FromEdges, Series
from hotloop.sim.network import RandomContacts

_DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int": torch.int32,
    "float": torch.float32,
}
_SOURCES = ("value", "from_column", "initialization_function")
_PROPERTY = ("name", "description", "dtype", "shape", *_SOURCES, "learnable", "low", "high")
FUNCTION_FIELDS = ("description", "generator", "arguments", "input_variables", "output_variables")
_ARGUMENT = (
    "name",
    "description",
    "learnable",
    "shape",
    "dtype",
    "value",
    "initialization_function",
)
_NETWORKS = ("static", "periodic", "random")


def read_properties(section: Section, *, of_agents: bool = True) -> dict[str, Any]:
    """Read the initialiser of every value below a section.

    Raises: ConfigError.
    """
    return {name: _property(spec, of_agents) for name, spec in section.sections()}


def _property(spec: Section, of_agents: bool) -> Any:
    spec.check_keys((*_PROPERTY,) if of_agents else (*_PROPERTY, "series"))
    if spec.get("learnable"):
        raise spec.error("learnable", "only an argument of a function can be learnable")
    dtype = _dtype(spec)
    if spec.get("series"):
        return Series(dtype or torch.float32)
    given = [kind for kind in _SOURCES if spec.get(kind) is not None]
    if len(given) != 1:
        wanted = ", ".join(_SOURCES) + ("" if of_agents else ", series: true")
        raise spec.error("", f"expected one of {wanted}; got {' and '.join(given) or 'none'}")
    if given == ["from_column"]:
        values: Any = FromColumn(str(spec.get("from_column")))
    elif given == ["value"]:
        values = _value(spec, of_agents)
    else:
        values = make(spec.section("initialization_function"), positional=2)
    return Column(values, dtype, spec.get("low"), spec.get("high"))


def _value(spec: Section, of_agents: bool = False) -> Any:
    """Read a constant: as it is for each agent, else broadcast to `shape`."""
    value, shape = spec.get("value"), spec.get("shape")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise spec.error("value", f"expected a number, or numbers in lists; got {value!r}")
    if of_agents or shape is None:
        return value if array.ndim == 0 else array
    try:
        return np.array(np.broadcast_to(array, tuple(shape)))
    except (ValueError, TypeError):
        raise spec.error("shape", f"{value!r} does not fill the shape {shape!r}") from None


def _dtype(spec: Section) -> torch.dtype | None:
    name = spec.get("dtype")
    if name is not None and str(name) not in _DTYPES:
        raise spec.error("dtype", f"no such dtype {name!r}{nearest(str(name), _DTYPES)}")
    return None if name is None else _DTYPES[str(name)]


def network_sections(state: Section) -> list[tuple[str, Section]]:
    """List the networks by name, at the top or one level below, as in `agent_agent`."""
    found = []
    for name, spec in state.section("network").sections():
        alone = "type" in spec.data or "generator" in spec.data
        found += [(name, spec)] if alone else list(spec.sections())
    return found


def read_network(spec: Section) -> Any:
    """Read a network: of the population's edges, of random contacts, or from a generator.

    Raises: ConfigError.
    """
    spec.check_keys(("type", "generator", "arguments", "description"))
    if spec.get("generator") is not None:
        made = Section(spec.file, spec.place, {k: v for k, v in spec.data.items() if k != "type"})
        return make(made, positional=2)
    kind = spec.get("type")
    if kind not in _NETWORKS:
        raise spec.error("type", f"no such network {kind!r}{nearest(str(kind), _NETWORKS)}")
    arguments = spec.section("arguments")
    if kind != "random":
        arguments.check_keys(())
        return FromEdges()
    arguments.check_keys(("degree", "seed"), ("degree",))
    degree, seed = arguments.whole_number("degree"), arguments.get("seed", 0)

    def random_contacts(_data: Any, state: Any) -> RandomContacts:
        size = next(iter(state.sizes.values()))
        return RandomContacts(size, degree or 1, seed)

    return random_contacts


def read_arguments(section: Section) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read constants, and parameters to be learned, by name.

    Raises: ConfigError.
    """
    constants, parameters = {}, {}
    for name, value in section.data.items():
        if not isinstance(value, dict) or not ({"value", "learnable", "name"} & set(value)):
            constants[name] = value
            continue
        spec = section.section(name)
        spec.check_keys(_ARGUMENT)
        if spec.get("initialization_function") is not None:
            found = make(spec.section("initialization_function"), positional=0)()
        elif spec.get("value") is None:
            raise spec.error("", "expected a value or an initialization_function")
        else:
            found = _value(spec)
        if spec.get("learnable"):
            parameters[name] = torch.as_tensor(found, dtype=_dtype(spec) or torch.float32)
        else:
            constants[name] = found
    return constants, parameters


def make(spec: Section, *, positional: int, extra: Any = ()) -> Callable[..., Any]:
    """Make what a generator names: a function with its arguments, or an instance of a class.

    positional: arguments that it gets besides; extra: names of further ones.

    Raises: ConfigError for a generator that does not exist or does not take these arguments.
    """
    spec.check_keys(FUNCTION_FIELDS, ("generator",))
    generator = find_generator(spec)
    constants, _ = read_arguments(spec.section("arguments"))
    is_class = inspect.isclass(generator)
    signature = inspect.signature(generator)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    names = list(signature.parameters)[0 if is_class else positional :]
    for name in constants if is_class else (*constants, *extra):
        if name not in names and not open_ended:
            raise spec.error(
                f"arguments.{name}",
                f"{spec.get('generator')} takes no argument {name!r}{nearest(name, names)}",
            )
    if is_class:
        made = generator(**constants)
        if not callable(made):
            raise spec.error("generator", f"an instance of {generator.__qualname__} is no function")
        return made  # type: ignore[no-any-return]
    return partial(generator, **constants) if constants else generator
