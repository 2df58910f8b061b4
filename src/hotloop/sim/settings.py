"""How a model is run: the settings of an executor besides the model and its population."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from hotloop.errors import DeviceError, SettingError, expect_whole

MOST_SEED = 2**63 - 1  # the state keeps seeds as int64
PRECISIONS = ("double", "mixed")


@dataclass(frozen=True)
class Settings:
    """One run's settings, with the device found and checked; substeps and programs may read them.

    Raises: SettingError for a value out of range.
    """

    device: torch.device
    """Where the state lives."""
    seed: int = 0
    """Keys every draw; replicate r of an ensemble draws as a single run of seed + r."""
    replicates: int | None = None
    """Runs of one ensemble, stepped in one batch (R); None is a single run without that axis."""
    fused: bool = True
    """Whether the model's program, if it has one, runs instead of its substeps."""
    capture: bool = False
    """Whether a step of the substeps is captured as a CUDA graph and replayed."""
    active_set: bool | Literal["auto"] = "auto"
    """Whether a program visits active agents only; "auto" follows what it has measured."""
    threads: int | None = None
    """CPU threads of a program, or of torch while substeps run; None takes all that this process
    may use."""
    precision: Literal["double", "mixed"] = "double"
    """Number format of a model's arithmetic; "mixed" is faster and less precise."""
    gradient: str | bool = "auto"
    """Estimator through random events, by the model's name for it, or "score"; False: none, True
    and "auto": the model's own choice, taken where a parameter requires a gradient."""

    def refuse_idle(
        self, model: str, who: str, acting: Sequence[object], *, has_estimators: bool
    ) -> None:
        """Refuse settings that are asked for and on which nothing acts.

        acting: what runs the model; what acts on settings has their names in `acts_on`. who: the
        same in words. has_estimators: whether the model brings estimators of gradients.

        Raises: SettingError.
        """
        asked: dict[str, object] = {}
        if self.active_set is True:
            asked["active_set"] = True
        if self.precision != "double":
            asked["precision"] = self.precision
        acts_on = {name for part in acting for name in getattr(part, "acts_on", ())}
        for name, value in asked.items():
            if name not in acts_on:
                raise SettingError(
                    f"{name}={value!r}: model {model!r} runs by {who} not act on it; leave it out"
                )
        if not has_estimators and self.gradient not in (True, False, "auto", "score"):
            raise SettingError(
                f"gradient={self.gradient!r}: model {model!r} has no estimators of its own: "
                "expected True, False, 'auto' or 'score'"
            )

    def __post_init__(self) -> None:
        expect_whole("replicates", self.replicates, 1)
        expect_whole("threads", self.threads, 1)
        expect_whole("seed", self.seed, -MOST_SEED, MOST_SEED - (self.replicates or 1))
        if self.precision not in PRECISIONS:
            raise SettingError(f"precision: expected one of {PRECISIONS}, got {self.precision!r}")
        if self.active_set not in (True, False, "auto"):
            raise SettingError(
                f"active_set: expected True, False or 'auto', got {self.active_set!r}"
            )
        if not isinstance(self.gradient, str | bool):
            raise SettingError(
                f"gradient: expected a name, True, False or 'auto', got {self.gradient!r}"
            )
        if self.capture and self.device.type != "cuda":
            raise SettingError(
                f"capture: a graph can be captured on a CUDA device only, and this run is on "
                f"{self.device}; leave capture out"
            )


def find_device(wanted: str | torch.device = "auto") -> torch.device:
    """Find the device to run on; "auto" takes CUDA where there is a card, else the CPU.

    A card has its number: a tensor's device has one, and is compared with this.

    Raises: DeviceError for a device that this machine or this build of torch does not have.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except (RuntimeError, TypeError):
        raise DeviceError(f"device {wanted!r} is none that torch knows; {_available()}") from None
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type not in ("cpu", "cuda") or (
        device.type == "cuda" and (device.index or 0) >= cards
    ):
        raise DeviceError(f"device {str(wanted)!r} is not there; {_available()}")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _available() -> str:
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ["'cpu'", *(f"'cuda:{i}'" for i in range(cards))]
    return f"available: {', '.join(names)}, or 'auto' for the best of them"
