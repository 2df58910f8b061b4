"""How the parts of a script are recognised, where the user wants it otherwise."""

from dataclasses import dataclass
from typing import ClassVar

from hotloop.errors import SettingError


@dataclass(frozen=True)
class RecogniseSettings:
    """For a script that has no stages of its own."""

    iteration: str | None = None
    """The stage whose calls begin an iteration, such as "env step"; default: what repeats."""
    stage: tuple[str, ...] = ()
    """Functions of yours that are stages too, as module:function or module:Class.method; also of a
    script with other stages of its own."""
    may_go_on: ClassVar[tuple[str, ...]] = ()  # only experiments put anything back

    def __post_init__(self) -> None:
        for each in self.stage:
            module, colon, name = each.partition(":")
            if not (module and colon and name):
                raise SettingError(
                    f"--stage {each}: expected module:function or module:Class.method; for the "
                    "script itself the module is __main__"
                )


@dataclass(frozen=True)
class ExperimentRecogniseSettings(RecogniseSettings):
    """For a script that has no stages of its own, in an experiment."""

    may_go_on: tuple[str, ...] = ()  # type: ignore[misc]
    """Stages, such as "env step", whose objects go on where they cannot be put back, as an env may
    that Box2D simulates: any state of it is as good as another. Default: they are delayed only."""
