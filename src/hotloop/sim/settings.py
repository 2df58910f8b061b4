"""How a model is run: what an executor is told besides the model and its population."""

from dataclasses import dataclass
from typing import Literal

import torch

from hotloop.errors import DeviceError, SettingError, expect_whole

MOST_SEED = 2**63 - 1  # the state keeps seeds as int64
PRECISIONS = ("double", "mixed")


@dataclass(frozen=True)
class Settings:
    """One run's settings, with the device found and checked; substeps and programs may read them.

    Raises: SettingError for a value that cannot be.
    """

    device: torch.device
    """Where the state lives."""
    seed: int = 0
    """Keys every draw; replicate r of an ensemble draws as a single run of seed + r."""
    replicates: int | None = None
    """Runs of one ensemble, stepped in one batch (R); None is a single run without that axis."""
    fused: bool = True
    """Whether the model's program, if it has one, takes the place of its substeps."""
    capture: bool = False
    """Whether a step of the substeps is captured as a CUDA graph and replayed."""
    active_set: bool | Literal["auto"] = "auto"
    """Whether a program visits active agents only; "auto" follows what it has measured."""
    threads: int | None = None
    """CPU threads of a program, or of torch while substeps run; None takes all that this process
    may use."""
    precision: Literal["double", "mixed"] = "double"
    """Number format of a model's arithmetic; "mixed" is a model's own faster, rougher choice."""
    gradient: str | bool = "auto"
    """Estimator through random events, by the model's name for it, or "score"; False: none, True
    and "auto": the model's own choice, taken where a parameter requires a gradient."""

    def asked(self) -> dict[str, object]:
        """The settings that ask for a faster way, which is refused where nothing goes it."""
        wanted: dict[str, object] = {}
        if self.active_set is True:
            wanted["active_set"] = True
        if self.precision != "double":
            wanted["precision"] = self.precision
        return wanted

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
    """The device to run on; "auto" takes CUDA where there is a card, else the CPU.

    A card comes with its number: a tensor's device has one, and is compared with this.

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
