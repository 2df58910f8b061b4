"""What is profiled, and for how long."""

from dataclasses import dataclass

from hotloop.errors import SettingError, expect_positive, expect_whole


@dataclass(frozen=True)
class ProfileSettings:
    """What to profile; several are done one after the other."""

    time: bool = False
    """Where the time goes, by function and line: py-spy, else pyinstrument, else cProfile."""
    memory: bool = False
    """Which lines allocate, what a stage holds at the peak, and whether memory grows: memray."""
    model: bool = False
    """FLOPs, bytes and time by operation and module, beside the machine's peaks: torch.profiler."""
    network: bool = False
    """Bytes sent and received by each stage, and its time less its waiting for them."""
    seconds: float = 8.0
    """For each profile: half of it with the profiler, half without, in turns."""
    native: bool = False
    """With --time: native frames too, which is slower (py-spy only)."""
    rate_per_s: int = 100
    """With --time: samples a second."""

    def __post_init__(self) -> None:
        expect_positive("seconds", self.seconds)
        expect_whole("rate_per_s", self.rate_per_s, 1, 1000)
        if self.native and not self.time:
            raise SettingError("--native: expected --time beside it: it adds frames to its stacks")

    def expect_aspects(self) -> None:
        """Refuse settings that ask for nothing. Raises: SettingError."""
        if not self.aspects:
            raise SettingError(
                "profile: expected what to profile: --time, --memory, --model, --network, or "
                "several of them"
            )

    @property
    def aspects(self) -> list[str]:
        """What is asked for, in the order in which it is done."""
        return [name for name in ("time", "memory", "model", "network") if getattr(self, name)]
