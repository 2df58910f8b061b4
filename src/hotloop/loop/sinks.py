"""Where metrics go, live and final: TensorBoard, Weights & Biases, or both.

Everything that shows metrics outside of hotloop writes to one `MetricSink`. A fault of what is
behind it ends no training: it is said once, and the others go on.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hotloop.errors import SettingError

_LOG = logging.getLogger("hotloop")
FINAL = "final/"
"""How the names of final metrics begin in TensorBoard, which has no place of its own for them."""


class MetricSink(Protocol):
    """What takes metrics."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Take values of one moment, by name; step: what was done by then, in units."""
        ...

    def text(self, name: str, text: str) -> None:
        """Take a text, in Markdown."""
        ...

    def final(self, values: Mapping[str, float], step: int) -> None:
        """Take what is known at the end, by name."""
        ...

    def close(self) -> None:
        """Write what is left. Idempotent."""
        ...


class Sinks:
    """Several sinks as one; values that are no finite numbers are left out.

    A sink that fails is given up: said once, and no error.
    """

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._open = list(sinks)

    @property
    def stopped(self) -> bool:
        """Whether there is nothing left to write to."""
        return not self._open

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Take values of one moment, by name; step: what was done by then, in units."""
        known = _finite(values)
        self._each(lambda sink: sink.scalars(known, step))

    def text(self, name: str, text: str) -> None:
        """Take a text, in Markdown."""
        self._each(lambda sink: sink.text(name, text))

    def final(self, values: Mapping[str, float], step: int) -> None:
        """Take what is known at the end, by name."""
        known = _finite(values)
        self._each(lambda sink: sink.final(known, step))

    def close(self) -> None:
        """Close all. Idempotent."""
        self._each(lambda sink: sink.close())
        self._open = []

    def _each(self, do: Callable[[MetricSink], None]) -> None:
        for sink in [*self._open]:
            try:
                do(sink)
            except Exception as error:  # a client of a service may raise any
                self._open.remove(sink)
                _LOG.warning(
                    "metrics could not be written to %s (%s): it goes on without them", sink, error
                )


def open_sinks(
    tensorboard: Path | str | None = None,
    wandb: str | None = None,
    *,
    name: str = "",
    prefix: str = "--",
) -> Sinks | None:
    """The sinks that were asked for; None without any.

    tensorboard: a folder of events. wandb: a project of Weights & Biases. name: of the run there.
    prefix: of the settings in messages.

    Raises: SettingError where a package is missing, a folder cannot be written to, or no run can be
    begun.
    """
    sinks: list[MetricSink] = []
    if tensorboard is not None:
        sinks.append(TensorBoardSink(Path(tensorboard), setting=f"{prefix}tensorboard"))
    if wandb is not None:
        sinks.append(WandbSink(wandb, name, setting=f"{prefix}wandb"))
    return Sinks(sinks) if sinks else None


class TensorBoardSink:
    """Events in a folder, through the writer of torch. Raises: SettingError."""

    def __init__(self, folder: Path, *, setting: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            extras = "torch,tensorboard" if error.name == "torch" else "tensorboard"
            raise SettingError(
                f"{setting} needs TensorBoard: pip install 'hotloop[{extras}]'"
            ) from None
        try:
            self._writer: Any = SummaryWriter(folder)
        except OSError as error:
            raise SettingError(
                f"{setting}: {folder}: expected a folder to write to, got {error.strerror or error}"
            ) from None
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write an event for each value."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def text(self, name: str, text: str) -> None:
        """Write a text."""
        self._writer.add_text(name, text)

    def final(self, values: Mapping[str, float], step: int) -> None:
        """Write an event for each value, under `final/`."""
        self.scalars({FINAL + name: value for name, value in values.items()}, step)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases, whose own settings (WANDB_MODE, WANDB_DIR) hold.

    Raises: SettingError.

    Its own counter of steps only grows, and evaluations may be reported late: so the step is a
    metric, and the axis of all others.
    """

    STEP = "step"

    def __init__(self, project: str, name: str, *, setting: str) -> None:
        try:
            import wandb
        except ImportError:
            raise SettingError(
                f"{setting} needs Weights & Biases: pip install 'hotloop[wandb]'"
            ) from None
        try:
            self._run: Any = wandb.init(project=project, name=name or None)
            self._run.define_metric(self.STEP, hidden=True)
            self._run.define_metric("*", step_metric=self.STEP)
        except Exception as error:  # of its client, its service or the network
            raise SettingError(
                f"{setting}: Weights & Biases could not begin a run: {error}; log in by `wandb "
                "login`, or set WANDB_MODE=offline to keep it on this machine"
            ) from None
        self._project, self._closed = project, False

    def __str__(self) -> str:
        return f"the project {self._project} of Weights & Biases"

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log the values."""
        self._run.log({**values, self.STEP: step})

    def text(self, name: str, text: str) -> None:
        """Note a text in the run's settings."""
        self._run.config.update({name: text}, allow_val_change=True)

    def final(self, values: Mapping[str, float], step: int) -> None:
        """Set the run's summary."""
        self._run.summary.update({**values, self.STEP: step})

    def close(self) -> None:
        """End the run; what is left is sent."""
        if not self._closed:
            self._closed = True
            self._run.finish()


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}
