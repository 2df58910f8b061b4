"""From a model and a population to a runner: the first lines of a script."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor

from hotloop.errors import ConfigError, SettingError, nearest
from hotloop.sim.config import load_model
from hotloop.sim.model import Model
from hotloop.sim.record import Record
from hotloop.sim.runner import Runner
from hotloop.sim.settings import Settings, find_device
from hotloop.sim.spec import ModelSpec

ModelSource = Model | ModelSpec | ModuleType | str | Path
"""A model or its spec; a module with `MODEL` or `model()`; a YAML file, or a folder with one."""


class LoadPopulation:
    """A population, loaded when it is first needed, from any source that `populations.load` takes.

    region: a name ("astoria"), a number of agents, a package, a folder, or the data itself.
    seed: for what is drawn. both_ways: whether each row of the network stands for a contact in
    both directions. periods: whether a folder's networks take turns. draw_network: whether one is
    drawn for a population without one. See `hotloop.populations.load`.
    """

    def __init__(
        self,
        region: Any,
        *,
        seed: int = 0,
        both_ways: bool | None = None,
        periods: bool = False,
        draw_network: bool = False,
    ) -> None:
        self.region, self.seed = region, seed
        self.both_ways, self.periods = both_ways, periods
        self.draw_network = draw_network
        self._data: Any = None

    @property
    def data(self) -> Any:
        """The population's data, loaded once.

        Raises: PopulationError.
        """
        if self._data is None:
            from hotloop.populations import load

            self._data = load(
                self.region,
                seed=self.seed,
                both_ways=self.both_ways,
                periods=self.periods,
                draw_network=self.draw_network,
            )
        return self._data

    @property
    def population_size(self) -> int:
        """Number of agents.

        Raises: PopulationError.
        """
        return int(self.data.size)


class DataLoader:
    """A model with the population that it runs on."""

    def __init__(self, model: ModelSource, load_population: Any) -> None:
        self.model = model
        self.load_population = _loader(load_population)

    @property
    def data(self) -> Any:
        """The population's data, loaded once."""
        return self.load_population.data


class Executor:
    """Makes the runner of a model: `Executor(model, data_loader=...).runner`.

    data_loader, pop_loader: a DataLoader, a LoadPopulation, or what either takes; a model with
    sizes of its own needs none.
    num_steps: steps of an episode; None takes the model's.
    record: what the trajectory keeps; by default the environment only.
    The others: see `Settings`.

    Raises: ConfigError for an inconsistent model, DeviceError for a device that this machine does
    not have, SettingError for a setting out of range.
    """

    def __init__(
        self,
        model: ModelSource,
        data_loader: Any = None,
        *,
        pop_loader: Any = None,
        device: str | torch.device = "auto",
        replicates: int | None = None,
        seed: int = 0,
        num_steps: int | None = None,
        record: Record | None = None,
        fused: bool = True,
        capture: bool = False,
        active_set: bool | Literal["auto"] = "auto",
        threads: int | None = None,
        precision: Literal["double", "mixed"] = "double",
        gradient: str | bool = "auto",
    ) -> None:
        if data_loader is not None and pop_loader is not None:
            raise SettingError(
                "executor: data_loader and pop_loader are the same; give one of them"
            )
        if num_steps is not None and num_steps < 1:
            raise SettingError(f"executor: num_steps: expected 1 or more, got {num_steps}")
        given = data_loader if data_loader is not None else pop_loader
        self.model = resolve_model(model)
        self.loader = None if given is None else _loader(given)
        self.settings = Settings(
            device=find_device(device),
            seed=seed,
            replicates=replicates,
            fused=fused,
            capture=capture,
            active_set=active_set,
            threads=threads,
            precision=precision,
            gradient=gradient,
        )
        self.runner = Runner(
            self.model, self.settings, load=self._load(), record=record, num_steps=num_steps
        )

    def init(self) -> Runner:
        """Return the runner at its first state."""
        self.runner.init()
        return self.runner

    def execute(self) -> Runner:
        """Run a whole episode from the first state; returns the runner."""
        runner = self.init()
        runner.step(runner.num_steps)
        return runner

    def _load(self) -> Callable[[], Any]:
        loader = self.loader
        return (lambda: None) if loader is None else (lambda: loader.data)


def create(
    model: ModelSource,
    population: Any = None,
    parameters: Mapping[str, Tensor] | None = None,
    **settings: Any,
) -> Runner:
    """Make a runner at its first state, in one call: `create(model, population, device="cpu")`.

    population: as data_loader of `Executor`. parameters: by path, set before the first step.
    settings: the other arguments of `Executor`.

    Raises: as `Executor`, `Runner.init` and `Runner.set_parameters`.
    """
    runner = Executor(model, population, **settings).init()
    if parameters is not None:
        runner.set_parameters(parameters)
    return runner


def resolve_model(source: ModelSource) -> Model:
    """Find the model of a source.

    Raises: ConfigError for a source that holds none.
    """
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        return load_model(source)
    if isinstance(source, ModelSpec):
        return source.model()
    found = getattr(source, "MODEL", None) or getattr(source, "model", None)
    if isinstance(found, ModelSpec):
        return found.model()
    made = found() if callable(found) else found
    if not isinstance(made, Model):
        name = getattr(source, "__name__", type(source).__qualname__)
        raise ConfigError(
            f"model: expected a Model, a module with MODEL or model(), or a YAML file; got {name!r}"
            f"{nearest('model', vars(source)) if isinstance(source, ModuleType) else ''}"
        )
    return made


def _loader(given: Any) -> LoadPopulation:
    if isinstance(given, DataLoader):
        return given.load_population
    return given if isinstance(given, LoadPopulation) else LoadPopulation(given)
