"""What a module declares of a model, so that commands and reports can use it by name.

A model alone says how it steps. A `ModelSpec` adds what people need around it: settings with their
help, the outputs that they look at and what those are called, the population it is made for, and
how it is fitted to observations. A module exports one as `MODEL`; no list elsewhere names it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from hotloop.errors import ConfigError, nearest
from hotloop.sim.model import Model, Series
from hotloop.sim.runner import Runner

Array = NDArray[Any]


@dataclass(frozen=True)
class Output:
    """A series of the environment that people look at, with the words for it.

    kind: "count" for events of one step, which add up over steps; "level" for a value that does
    not, such as a share. The words of totals and shares are for counts only; None makes them of
    the label.
    """

    name: str
    """Of the series: "cases" for environment/cases; also the name of its column in a table."""
    label: str
    """In charts and tables, such as "new cases"."""
    kind: Literal["count", "level"] = "count"
    word: str | None = None
    """At the head of its line in the answer."""
    total_name: str | None = None
    """Column of the sum up to each step."""
    total_label: str | None = None
    """In charts and tables, of that sum."""
    share_of: str | None = None
    """What its total is a share of: "agents", the total of another output by name, or nothing."""
    share_label: str | None = None
    """The words after that share, such as "of the agents"."""
    peak: bool = False
    """Whether the answer says how high its highest step is, and when."""
    colour: int = 0
    """Number of its colour in charts, 0 to 9."""


@dataclass(frozen=True)
class ObservedColumn:
    """A column of a file of observations: the output that it observes, and names that it may have.

    The first name is the one that messages use. table: its name in the table of a fit.
    """

    output: str
    names: tuple[str, ...]
    table: str
    required: bool = True


@dataclass(frozen=True)
class FittedParameter:
    """One fitted number. interval: of 95%, None where it is not known."""

    label: str
    group: str
    """Numbers of one group stand in one line of the answer."""
    value: float
    first_guess: float
    interval: tuple[float, float] | None = None
    fitted: bool = True
    """Whether the observations could say anything about it."""


@dataclass(frozen=True)
class Fit:
    """What a calibration found.

    curves: by output, (3, T): mean, and the ends of the band that holds 95% of the runs.
    notes: what a reader must know to read the numbers.
    """

    parameters: Sequence[FittedParameter]
    curves: Mapping[str, Array] = field(default_factory=dict)
    notes: Sequence[str] = ()


OnIteration = Callable[[int, float, Sequence[FittedParameter]], None]
"""Called with an iteration's number, its loss, and the parameters before its step."""


class Calibration(Protocol):
    """How a model is fitted to observations."""

    @property
    def settings(self) -> type[Any]:
        """A dataclass: how to fit. It has `iterations` and `seed` at least."""
        ...

    @property
    def loss_label(self) -> str:
        """What the loss is, in a sentence for reports."""
        ...

    @property
    def observed(self) -> Sequence[ObservedColumn]:
        """The columns that a file of observations may have; the first is required."""
        ...

    @property
    def fewest_steps(self) -> int:
        """Observations of fewer steps say too little."""
        ...

    def check(self, settings: Any, model_settings: Any, observed: Mapping[str, Array]) -> None:
        """Refuse, before any work, what cannot be fitted.

        Raises: SettingError.
        """
        ...

    def check_size(self, observed: Mapping[str, Array], agents: int, population: str) -> None:
        """Refuse what so many agents cannot have given.

        Raises: SettingError.
        """
        ...

    def first_guess(self, runner: Runner, observed: Mapping[str, Array]) -> list[FittedParameter]:
        """The parameters before the first iteration."""
        ...

    def group_notes(self, observed: Mapping[str, Array]) -> Mapping[str, str]:
        """What the answer says behind the numbers of each group; may be empty."""
        ...

    def replicates(self, settings: Any) -> int:
        """Runs at the fit, from which its bands are."""
        ...

    def fit(
        self,
        runner: Runner,
        observed: Mapping[str, Array],
        settings: Any,
        on_iteration: OnIteration,
    ) -> Fit:
        """Fit; the runner is neither stepped nor changed.

        observed: by output, (T,).
        """
        ...


@dataclass(frozen=True)
class NoSettings:
    """Settings of a model that has none."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model with what commands and reports need of it.

    make: the model of given settings, an instance of `settings`.
    settings: a dataclass whose fields all have defaults; they become options of the command line,
    with their docstrings as help.
    outputs: the first is the one that the answer begins with. Empty: every series of the model.
    population: what is loaded where none is asked for: a name, a number of agents or a folder.
    None: one must be asked for, or the model has agents of its own.
    at_start: what reports count in the first state, as (label, number).

    Raises: ConfigError for settings that are no such dataclass.
    """

    name: str
    make: Callable[[Any], Model]
    settings: type[Any] = NoSettings
    outputs: Sequence[Output] = ()
    step: str = "step"
    """What one step is called, such as "day"."""
    heading: str | None = None
    """Of a simulation's page; {population} stands for the name of the population."""
    most_steps: int | None = None
    population: str | None = None
    at_start: Callable[[Runner], Sequence[tuple[str, float]]] | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        where = f"model {self.name!r}: settings"
        if not (isinstance(self.settings, type) and is_dataclass(self.settings)):
            raise ConfigError(f"{where}: expected a dataclass, got {self.settings!r}")
        try:
            self.settings()
        except TypeError as error:
            names = ", ".join(f.name for f in fields(self.settings))
            raise ConfigError(
                f"{where}: expected a default for every field ({names}): {error}"
            ) from None

    def model(self, settings: Any = None) -> Model:
        """The model of these settings, or of the defaults.

        Raises: ConfigError if `make` gives no model; what `make` raises.
        """
        made = self.make(self.settings() if settings is None else settings)
        if not isinstance(made, Model):
            raise ConfigError(
                f"model {self.name!r}: make: expected a hotloop.sim.Model, got "
                f"{type(made).__qualname__}"
            )
        return made

    def outputs_of(self, model: Model) -> tuple[Output, ...]:
        """The outputs to look at: those declared, or every series of the model.

        Raises: ConfigError for an output that is no series of the model, and where there is none.
        """
        known = [name for name, value in model.environment.items() if isinstance(value, Series)]
        if not known:
            raise ConfigError(
                f"model {self.name!r} has no series to look at: add one to its environment, as in "
                'environment={"cases": Series()}'
            )
        for output in self.outputs:
            if output.name not in known:
                raise ConfigError(
                    f"model {self.name!r}: outputs: {output.name!r} is no series of the model"
                    f"{nearest(output.name, known)}"
                )
        # Nothing is known of what an undeclared series counts, so nothing is added up.
        undeclared = (
            Output(name, name.replace("_", " "), "level", colour=number % COLOURS)
            for number, name in enumerate(known)
        )
        return tuple(self.outputs) or tuple(undeclared)


COLOURS = 10  # that charts have


def as_spec(declared: Model | ModelSpec) -> ModelSpec:
    """A model as it is, without settings; a spec as it is."""
    if isinstance(declared, ModelSpec):
        return declared
    return ModelSpec(name=declared.name, make=lambda _settings: declared)
