"""Settings that were found to be the fastest, as a file that every verb reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hotloop.errors import SettingError, nearest
from hotloop.loop.lever import Option

_KEYS = ("target", "settings", "levers")


@dataclass(frozen=True)
class Chosen:
    """Options for a target.

    settings: what it is made with, as text. levers: what is set before its first iteration.
    """

    target: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    levers: Mapping[str, Option] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the file. Raises: SettingError if it cannot be written."""
        content = {
            "target": self.target,
            "settings": dict(self.settings),
            "levers": dict(self.levers),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(content, sort_keys=False))
        except OSError as error:
            raise SettingError(f"{path}: cannot be written: {error.strerror}") from None

    def for_target(self, target: str) -> "Chosen":
        """The same. Raises: SettingError where they were found for another target."""
        if self.target and self.target != target:
            raise SettingError(
                f"these settings are of {self.target}, not of {target}: expected those that "
                f"`hotloop optimize {target}` has written"
            )
        return self


def read_chosen(path: Path) -> Chosen:
    """Read settings from a file.

    Raises: SettingError for a file that cannot be read, or that holds something else.
    """
    try:
        found: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: expected YAML, got {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise SettingError(f"{path}: expected {', '.join(_KEYS)}, got {type(found).__name__}")
    for key in found:
        if key not in _KEYS:
            raise SettingError(f"{path}: there is no {key!r}{nearest(str(key), _KEYS)}")
    groups: dict[str, dict[str, Option]] = {}
    for name in ("settings", "levers"):
        group = found.get(name) or {}
        if not isinstance(group, dict) or not all(isinstance(key, str) for key in group):
            raise SettingError(f"{path}: {name}: expected names with values, got {group!r}")
        for key, value in group.items():
            if not isinstance(value, Option):
                raise SettingError(
                    f"{path}: {name}: {key}: expected a number, a text, true, false or null, got "
                    f"{value!r}"
                )
        groups[name] = group
    settings = {name: str(value) for name, value in groups["settings"].items()}
    return Chosen(str(found.get("target") or ""), settings, groups["levers"])
