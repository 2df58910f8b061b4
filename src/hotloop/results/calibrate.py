"""Calibrations of a model to observations, as a run file that can be drawn again."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError
from hotloop.loop.lever import Options
from hotloop.loop.run import Run
from hotloop.results.scenario import Scenario

if TYPE_CHECKING:
    from hotloop.sim.spec import Calibration, Fit, FittedParameter, ModelSpec

Array = NDArray[Any]


def calibration_of(spec: "ModelSpec") -> "Calibration":
    """What the model declares of its calibration.

    Raises: SettingError for a model that declares none.
    """
    if spec.calibration is None:
        raise SettingError(
            f"model {spec.name!r} declares no calibration: give its ModelSpec one, such as "
            "hotloop.models.epidemic.WeeklyRates() for a model of a Spread"
        )
    return spec.calibration


def calibrate(
    scenario: Scenario,
    observed: Mapping[str, Array],
    settings: Any,
    on_iteration: Callable[[int, float], None],
    levers: Options | None = None,
) -> tuple[Run, BaseException | None]:
    """Fit a scenario's model to observations; returns what was fitted, and what cut it short.

    observed: by output, (T,) each. settings: an instance of the calibration's own.
    on_iteration: called with the number of iterations done, and the loss. levers: options that are
    set before the first one.
    Raises: SettingError for a scenario that cannot be run, or observations that cannot be fitted.
    """
    calibration = calibration_of(scenario.spec)
    data = scenario.load_population()
    runner = scenario.runner(data, levers or {})
    try:
        facts = scenario.facts(runner, data)
        calibration.check_size(observed, facts["agents"], facts["population"])
        history = _History(calibration.first_guess(runner, observed), on_iteration)
        fit: Fit | None = None
        error: BaseException | None = None
        begin = time.perf_counter()
        try:
            fit = calibration.fit(runner, observed, settings, history.note)
        except (Exception, KeyboardInterrupt) as raised:
            error = raised
        facts["seconds"] = time.perf_counter() - begin
    finally:
        runner.close()
    facts["replicates"] = calibration.replicates(settings)
    facts["loss_label"] = calibration.loss_label
    facts["groups"] = [
        {"label": label, "note": note} for label, note in calibration.group_notes(observed).items()
    ]
    run = Run(
        verb="calibrate",
        target=scenario.target(facts),
        settings=dataclasses.asdict(settings) | {"population": scenario.source},
        facts=facts,
        arrays={"loss": np.array(history.losses)}
        | {f"observed_{name}": counts for name, counts in observed.items()},
        complete=error is None,
    )
    _add(run, history.parameters if fit is None else fit.parameters, fit)
    return run, error


@dataclasses.dataclass
class _History:
    """The losses so far, and the parameters before the latest iteration."""

    parameters: "Sequence[FittedParameter]"
    on_iteration: Callable[[int, float], None]
    losses: list[float] = dataclasses.field(default_factory=list)

    def note(self, number: int, loss: float, before: "Sequence[FittedParameter]") -> None:
        """Note an iteration, and pass it on."""
        self.losses.append(loss)
        self.parameters = list(before)
        self.on_iteration(number + 1, loss)


def _add(run: Run, parameters: "Sequence[FittedParameter]", fit: "Fit | None") -> None:
    unknown = (np.nan, np.nan)
    run.facts["notes"] = [] if fit is None else list(fit.notes)
    run.facts["parameters"] = [
        {"label": each.label, "group": each.group, "fitted": each.fitted} for each in parameters
    ]
    run.arrays["parameter"] = np.array([each.value for each in parameters])
    run.arrays["parameter_first"] = np.array([each.first_guess for each in parameters])
    run.arrays["parameter_interval"] = np.array(
        [each.interval or unknown for each in parameters], np.float64
    ).reshape(-1, 2)
    for name, rows in ({} if fit is None else fit.curves).items():
        run.arrays[f"fitted_{name}"] = rows


def table_of(run: Run, names: Mapping[str, str]) -> dict[str, Array]:
    """One row for each step of a calibration, by column: observed, then mean, low and high.

    names: of each output in the table.
    """
    table: dict[str, Array] = {}
    for output, name in names.items():
        if f"observed_{output}" in run.arrays:
            table[f"observed_{name}"] = run.arrays[f"observed_{output}"]
        rows = zip(("mean", "low", "high"), run.arrays[f"fitted_{output}"], strict=True)
        table |= {f"{name}_{end}": row for end, row in rows}
    steps = len(next(iter(table.values())))
    return {run.facts["step"]: np.arange(steps), **table}
