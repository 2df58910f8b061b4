"""How a model is run: options of several verbs, and what a file of settings says of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from hotloop.cli.chosen import made_with
from hotloop.errors import SettingError
from hotloop.loop.chosen import Chosen

ACTIVE_SET = "active_set"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What changes how fast a model runs on the CPU, and no result."""

    threads: int | None = None
    """CPU threads; default: all that this process may use."""
    active_set: bool = True
    """Visit the active agents only where they are few; without it every agent in every step."""
    fused: bool = True
    """Run the model's compiled program, if it has one; without it its substeps, one by one."""


def defaults_from(chosen: Chosen, kinds: Sequence[type[Any]]) -> dict[str, Any]:
    """The defaults that a file gives to options and settings. Raises: SettingError."""
    settings = dict(chosen.settings)
    active_set = settings.get(ACTIVE_SET, "auto").lower()
    if active_set not in ("auto", "false"):
        raise SettingError(
            f"{ACTIVE_SET}: expected auto or false, got {active_set}: a run of a model visits the "
            "active agents only where that is faster"
        )
    if ACTIVE_SET in settings:
        settings[ACTIVE_SET] = str(active_set == "auto")
    return made_with(dataclasses.replace(chosen, settings=settings), kinds)
