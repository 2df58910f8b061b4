"""A model: its first values and the substeps of a step. It is immutable.

Initial values are given as initialisers: a number, an array, a column of the loaded population
(`FromColumn`), or a function `(data, state) -> array` that may use `state.uniform` and what was
initialised before it. `Column` adds a dtype and a range to any of them.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import ConfigError, nearest
from hotloop.sim.program import Differentiator, Parts, Program
from hotloop.sim.substep import Substep


@dataclass(frozen=True)
class FromColumn:
    """A column of the loaded population, by name.

    convert: (column, where) -> column, checks and converts the values before they are used; `where`
    names population and column, for errors.
    """

    name: str
    convert: Callable[[np.ndarray, str], np.ndarray] | None = None


@dataclass(frozen=True)
class Column:
    """Initial values with the dtype that the state keeps them in and the range they must have.

    dtype: None keeps the values' own, 64 bits cut to 32.
    low, high: the least and the greatest value allowed, both included.
    """

    values: Any
    dtype: torch.dtype | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A record of the environment with one entry a step, (T,) or (R, T), 0 until it is written.

    A substep that writes one returns today's value, () or (R,).
    """

    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class FromEdges:
    """The contact network of the loaded population."""


Initialiser = (
    float | int | bool | np.ndarray | Tensor | FromColumn | Column | Callable[[Any, Any], Any]
)


@dataclass(frozen=True)
class Model:
    """A simulation without its population, seed and device.

    name: shown in reports.
    substeps: in the order of a step; every runner takes copies.
    populations: {population: {column: initialiser}}.
    sizes: agents of each population that is not loaded.
    environment: {name: initialiser, or Series()}; values of any shape, one for every replicate.
    networks: {name: FromEdges(), a network, edges (E, 2), or a function (data, state) -> either}.
    objects: {object: {property: initialiser}}.
    num_steps_per_episode: steps until `reset` (T).
    program: makes the program that replaces the substeps; returns None for settings that it does
    not support.
    gradient: makes the differentiator of a program's counts; returns None where the substeps are
    differentiated.
    config: the nested settings that a runner shows as `config`; of a YAML model, its file.

    Raises: ConfigError for parts that do not fit each other.
    """

    name: str
    substeps: Sequence[Substep]
    populations: Mapping[str, Mapping[str, Initialiser]]
    sizes: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    networks: Mapping[str, Any] = field(default_factory=dict)
    objects: Mapping[str, Mapping[str, Initialiser]] = field(default_factory=dict)
    num_steps_per_episode: int = 100
    program: Callable[[Parts], Program | None] | None = None
    gradient: Callable[[Parts], Differentiator | None] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_steps_per_episode < 1:
            raise ConfigError(
                f"model {self.name!r}: num_steps_per_episode: expected at least 1, "
                f"got {self.num_steps_per_episode}"
            )
        if not self.populations:
            raise ConfigError(f"model {self.name!r} has no population")
        if not self.substeps:
            raise ConfigError(f"model {self.name!r} has no substeps")
        for name, size in self.sizes.items():
            if name not in self.populations:
                raise ConfigError(
                    f"model {self.name!r}: sizes has {name!r}, which is no population"
                    f"{nearest(name, self.populations)}"
                )
            if size < 1:
                raise ConfigError(
                    f"model {self.name!r}: population {name!r}: expected at least one agent, "
                    f"got {size}"
                )
        names = [substep.name for substep in self.substeps]
        if len(set(names)) < len(names):
            raise ConfigError(f"model {self.name!r}: two substeps share a name: {', '.join(names)}")
        for substep in self.substeps:
            self._check_paths(substep)

    def paths(self) -> list[str]:
        """List the path of every value in the state."""
        return [
            *(f"agents/{p}/{c}" for p, columns in self.populations.items() for c in columns),
            *(f"environment/{name}" for name in self.environment),
            *(f"networks/{name}" for name in self.networks),
            *(f"objects/{o}/{p}" for o, values in self.objects.items() for p in values),
        ]

    def describe(self, **of_run: Any) -> dict[str, Any]:
        """Describe the model as nested, plain settings, in the form of a model file.

        of_run: added to `simulation_metadata`; None keeps the model's own.
        """
        config = copy.deepcopy(dict(self.config)) or self._as_config()
        known = config.get("simulation_metadata", {})
        config["simulation_metadata"] = {
            "name": self.name,
            "num_episodes": 1,
            **known,
            "num_substeps_per_step": len(self.substeps),
            **{
                key: value for key, value in of_run.items() if value is not None or key not in known
            },
        }
        return config

    def _as_config(self) -> dict[str, Any]:
        return {
            "state": {
                "agents": {name: list(columns) for name, columns in self.populations.items()},
                "environment": list(self.environment),
                "network": list(self.networks),
                "objects": {name: list(values) for name, values in self.objects.items()},
            },
            "substeps": {
                str(number): {
                    "name": substep.name,
                    "active_agents": list(substep.populations),
                    "reads": list(substep.reads),
                    "writes": list(substep.writes),
                    "learnable": list(substep.learnable),
                }
                for number, substep in enumerate(self.substeps)
            },
        }

    @property
    def loaded_population(self) -> str | None:
        """The population that a loader's data is for: the first that has no size of its own."""
        return next((name for name in self.populations if name not in self.sizes), None)

    def _check_paths(self, substep: Substep) -> None:
        paths = self.paths()
        for population in substep.populations:
            if population not in self.populations:
                raise ConfigError(
                    f"substep {substep.name!r}: no population {population!r}"
                    f"{nearest(population, self.populations)}"
                )
        for role, wanted in (("reads", substep.reads), ("writes", substep.writes)):
            for path in wanted:
                below = role == "reads" and any(p.startswith(f"{path}/") for p in paths)
                if path not in paths and not below:
                    raise ConfigError(
                        f"substep {substep.name!r}: {role} {path!r}, which is not in the model"
                        f"{nearest(path, paths)}"
                    )
            for path in wanted if role == "writes" else ():
                others = [s.name for s in self.substeps if s is not substep and path in s.writes]
                section, _, name = path.partition("/")
                if (
                    section == "environment"
                    and others
                    and isinstance(self.environment[name], Series)
                ):
                    raise ConfigError(
                        f"substeps {substep.name!r} and {others[0]!r} both write the series "
                        f"{path!r}; give each a series of its own"
                    )
        if any(path.startswith("networks/") for path in substep.writes):
            raise ConfigError(f"substep {substep.name!r}: a network cannot be written")
