"""What a watch does with what it sees."""

from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import SettingError, expect_positive


@dataclass(frozen=True)
class WatchSettings:
    """Where a watched training is shown, how often, and whether its stages are delayed."""

    tensorboard: str | Path | None = None
    """A folder for TensorBoard events: rates, and the share of each stage."""
    wandb: str | None = None
    """A project of Weights & Biases, for the same, and the figures of the end."""
    run: str | Path | None = None
    """A file that `hotloop report` draws; it is written when the training ends."""
    every_s: float = 10.0
    """Seconds from one line to the next."""
    terminal: bool = True
    """Whether the lines go to the terminal, as standard error."""
    causal: bool = False
    """Delay stages now and then, to find which of them hold the training up."""
    delay_share: float = 0.01
    """The share of the time that delays may take."""
    name: str | None = None
    """How reports call the training; default: the name of its script."""

    def __post_init__(self) -> None:
        expect_positive("every_s", self.every_s)
        if not 0 < self.delay_share <= 0.5:
            raise SettingError(
                f"delay_share: expected a share above 0 and up to 0.5, such as 0.01, got "
                f"{self.delay_share}"
            )
        if not self.causal and self.delay_share != WatchSettings.delay_share:
            raise SettingError("delay_share: nothing is delayed without causal=True; add that")
