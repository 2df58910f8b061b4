"""How the parts of a script are recognised, where the user wants it otherwise."""

from dataclasses import dataclass

from hotloop.errors import SettingError


@dataclass(frozen=True)
class RecogniseSettings:
    """For a script that has no stages of its own."""

    iteration: str | None = None
    """The stage whose calls begin an iteration, such as "env step"; default: what repeats."""
    stage: tuple[str, ...] = ()
    """Functions of yours that are stages too, as module:function or module:Class.method."""

    def __post_init__(self) -> None:
        for each in self.stage:
            module, colon, name = each.partition(":")
            if not (module and colon and name):
                raise SettingError(
                    f"--stage {each}: expected module:function or module:Class.method; for the "
                    "script itself the module is __main__"
                )
