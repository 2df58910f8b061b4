"""A model on a population, made ready to run: what simulations and calibrations share."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hotloop.errors import (
    CapacityError,
    ConfigError,
    DeviceError,
    NetworkError,
    PopulationError,
    SettingError,
)
from hotloop.loop.lever import Options
from hotloop.optimize.libraries import levers_for

if TYPE_CHECKING:
    from hotloop.populations.data import PopulationData
    from hotloop.sim import Model, Runner
    from hotloop.sim.spec import ModelSpec, Output

_LAST_SEED = 2**62  # seeds are 63 bits wide, and an ensemble counts on from the first


@dataclass(frozen=True)
class Scenario:
    """What is to be run: a model, who is in it, for how long, and on what.

    settings: of the model, None for its defaults. population: None for what the model declares.
    steps: None for the model's. replicates: None for a single run without that axis.

    Raises: SettingError for a number outside its range, and for a population that the model does
    not need or that is missing.
    """

    spec: "ModelSpec"
    settings: Any = None
    population: str | None = None
    steps: int | None = None
    replicates: int | None = None
    seed: int = 0
    device: str = "auto"
    threads: int | None = None
    precision: Literal["double", "mixed"] = "double"
    active_set: bool = True
    fused: bool = True
    both_ways: bool = False
    draw_network: bool = False
    model: "Model" = field(init=False, repr=False)
    num_steps: int = field(init=False, repr=False)
    source: str | None = field(init=False, repr=False)
    """The population to load; None for a model with agents of its own."""

    def __post_init__(self) -> None:
        for option, value in (("--steps", self.steps), ("--replicates", self.replicates)):
            if value is not None and value < 1:
                raise SettingError(f"{option}: expected 1 or more, got {value}")
        most = self.spec.most_steps
        if most is not None and self.steps is not None and self.steps > most:
            raise SettingError(f"--steps: expected at most {most:,}, got {self.steps:,}")
        if not 0 <= self.seed <= _LAST_SEED:
            raise SettingError(f"--seed: expected 0 to {_LAST_SEED:,}, got {self.seed:,}")
        with refused_before_start():
            model = self.spec.model(self.settings)
            self.spec.outputs_of(model)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "num_steps", self.steps or model.num_steps_per_episode)
        object.__setattr__(self, "source", self._population_of(model))

    @property
    def outputs(self) -> "tuple[Output, ...]":
        """The outputs of the model to look at."""
        return self.spec.outputs_of(self.model)

    @property
    def engine(self) -> dict[str, Any]:
        """Settings of the executor, besides the model, the population, replicates and seeds."""
        return {
            "num_steps": self.num_steps,
            "device": self.device,
            "threads": self.threads,
            "precision": self.precision,
            "active_set": "auto" if self.active_set else False,
            "fused": self.fused,
        }

    def load_population(self) -> "PopulationData | None":
        """The population, drawn or read; None for a model with agents of its own.

        Raises: SettingError for one that does not exist or that cannot be read.
        """
        if self.source is None:
            return None
        from hotloop.populations import load

        with refused_before_start():
            # Not asked for, the direction is left open: the log then says what it looks like.
            return load(
                self.source, both_ways=self.both_ways or None, draw_network=self.draw_network
            )

    def runner(self, data: "PopulationData | None", levers: Options | None = None) -> "Runner":
        """A runner at its first state.

        levers: options that are set on it.
        Raises: SettingError for a device that is not there, a population that does not fit the
        model, too little memory, a lever or an option that there is not.
        """
        from hotloop.sim import Executor
        from hotloop.sim.loop import loop
        from hotloop.sim.settings import find_device

        with refused_before_start(), levers_for(levers or {}) as set_levers:
            device = find_device(self.device)
            runner = Executor(
                self.model,
                data,
                replicates=self.replicates,
                seed=self.seed,
                capture=device.type == "cuda",
                **self.engine | {"device": device},
            ).init()
            if levers:
                set_levers(loop(runner))
            return runner

    def facts(self, runner: "Runner", data: "PopulationData | None") -> dict[str, Any]:
        """What a run file says of the scenario."""
        sizes = runner.state.sizes
        at_start = self.spec.at_start
        return {
            "model": self.spec.name,
            "population": "its own agents" if data is None else data.name,
            "agents": sum(sizes.values()),
            "contacts": _contacts(runner) if data is None else data.num_edges,
            "device": str(runner.device),
            "step": self.spec.step,
            "start": [] if at_start is None else [list(pair) for pair in at_start(runner)],
            "outputs": [vars(output) for output in self.outputs],
        }

    def target(self, facts: dict[str, Any]) -> str:
        """What the run is called: the model, and the population if one was loaded."""
        return self.spec.name if self.source is None else f"{self.spec.name}:{facts['population']}"

    def _population_of(self, model: "Model") -> str | None:
        asked = self.population
        if model.loaded_population is not None:
            if asked is None and self.spec.population is None:
                raise SettingError(
                    f"--population: expected one, which the model {self.spec.name!r} needs: "
                    "astoria, brooklyn, a number of agents, or a folder"
                )
            return self.spec.population if asked is None else asked
        for option, value in (
            ("--population", asked),
            ("--both-ways", self.both_ways),
            ("--draw-network", self.draw_network),
        ):
            if value not in (None, False):
                raise SettingError(
                    f"{option}: expected without, as the model {self.spec.name!r} has agents of "
                    "its own; leave it out"
                )
        return None


def _contacts(runner: "Runner") -> int | None:
    """Rows of the model's own networks; None without any."""
    networks = runner.state.networks.values()
    return sum(int(network.num_edges) for network in networks) if networks else None


@contextlib.contextmanager
def refused_before_start() -> Iterator[None]:
    """Turn what is found wrong before the first step into a SettingError, as of any setting."""
    try:
        yield
    except (PopulationError, DeviceError, CapacityError, ConfigError, NetworkError) as error:
        raise SettingError(str(error)) from error
    except MemoryError as error:
        raise SettingError(
            "out of memory before the first step; ask for fewer --replicates, a smaller "
            "--population, or fewer at once with --batch"
        ) from error
