"""What stands on one side of a comparison, as it is written: a loop, a test, or a whole command."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotloop.errors import SettingError
from hotloop.loop.chosen import Chosen, read_chosen
from hotloop.loop.lever import Option

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
LOOP, TEST, COMMAND = "loop", "test", "command"
TRAINING = "training"  # nobody writes it: a search trains a target again and again
SETTINGS_FROM = "--settings-from"


@dataclass(frozen=True)
class Place:
    """Where a side runs.

    folder: its working folder. python: its interpreter. modules: folders in which its modules are
    searched first. about: how reports call it, such as "at v1.2"; nothing for the tree as it is.
    original: the tree from which none of its modules may come, as it is a copy of that.
    """

    folder: Path = field(default_factory=Path.cwd)
    python: str = sys.executable
    modules: tuple[str, ...] = ()
    about: str = ""
    original: Path | None = None

    def environment(self) -> dict[str, str]:
        """The variables of a process that runs here."""
        # A measurement tells its own workers by this variable; a side is none of them.
        found = {name: value for name, value in os.environ.items() if name != "HOTLOOP_CONTROL"}
        path = [*self.modules, *filter(None, [found.get("PYTHONPATH")])]
        if path:
            found["PYTHONPATH"] = os.pathsep.join(path)
        if self.python != sys.executable:
            programs = str(Path(self.python).parent)
            found["PATH"] = os.pathsep.join([programs, found.get("PATH", os.defpath)])
        return found


@dataclass(frozen=True)
class Side:
    """One side.

    name: "A" or "B". text: as the user wrote it. kind: a "loop" is run block by block, also that
    of a script, or of a "test" that uses the fixture `benchmark`; a "command" runs as a whole.
    words: the target and the arguments of a script, the test, or the command.
    settings: of a target that is no script. variables: of the environment. levers: options that
    are set before the first iteration.
    """

    name: str
    text: str
    kind: str
    words: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    levers: Mapping[str, Option] = field(default_factory=dict)
    place: Place = field(default_factory=Place)

    @property
    def label(self) -> str:
        """How reports call it."""
        return f"{self.text} {self.place.about}".rstrip()

    def environment(self) -> dict[str, str]:
        """The variables of its processes."""
        return self.place.environment() | dict(self.variables)


def parse_side(name: str, text: str, place: Place | None = None) -> Side:
    """Read what a user wrote for a side.

    As in a shell, `NAME=value` before the rest sets a variable of the environment. A test is
    `file.py::name`; a target is what the other commands take, followed by a script's arguments or
    by `name=value` settings; anything else is a command, if there is such a program. Directly
    behind a target, `--settings-from FILE` names what a search has found for it.

    Raises: SettingError for what is none of these, and for a file that is not of the target.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SettingError(f"{name}: {text!r} cannot be read: {error}") from None
    variables: dict[str, str] = {}
    while words and _VARIABLE.match(words[0]):
        key, _, value = words.pop(0).partition("=")
        variables[key] = value
    if not words:
        raise SettingError(f"{name}: {text!r} names no target and no command")
    kind, settings, chosen = _kind_of(words[0]), dict[str, str](), Chosen()
    if kind == LOOP and words[1:] and words[1].partition("=")[0] == SETTINGS_FROM:
        chosen, words = _chosen_behind(name, words)
    if kind == TEST and words[1:]:
        raise SettingError(f"{name}: {words[0]}: expected nothing behind a test, got {words[1:]}")
    if kind == LOOP and not words[0].endswith(".py"):
        words, settings = words[:1], _settings_in(name, words)
    return Side(
        name=name,
        text=text,
        kind=kind,
        words=tuple(words),
        settings={**chosen.settings, **settings},
        variables=variables,
        levers=chosen.levers,
        place=place or Place(),
    )


def _kind_of(first: str) -> str:
    """The kind of a side, by its first word."""
    if "::" in first:
        return TEST
    if first.endswith(".py") and not _is_program(first):
        return LOOP
    return LOOP if shutil.which(first) is None else COMMAND


def _settings_in(name: str, words: Sequence[str]) -> dict[str, str]:
    """The settings behind a target. Raises: SettingError for a word that is none."""
    wrong = [word for word in words[1:] if not _VARIABLE.match(word)]
    if wrong:
        raise SettingError(
            f"{name}: {wrong[0]!r} behind the target {words[0]}: expected settings as name=value, "
            f"or {SETTINGS_FROM} FILE directly behind the target"
        )
    return {key: value for key, _, value in (word.partition("=") for word in words[1:])}


def _chosen_behind(name: str, words: Sequence[str]) -> tuple[Chosen, list[str]]:
    """What the file behind a target holds, and the words without it.

    Raises: SettingError where no file is named, and as `read_chosen` and `Chosen.for_target`.
    """
    after = list(words[2:])
    file = words[1].partition("=")[2] or (after.pop(0) if after else "")
    if not file:
        raise SettingError(f"{name}: {SETTINGS_FROM}: expected a file behind it, got none")
    return read_chosen(Path(file)).for_target(words[0]), [words[0], *after]


def _is_program(word: str) -> bool:
    """Whether a script is meant as a program: `./run.py`, which may be executed."""
    return word.startswith(("./", "/")) and shutil.which(word) is not None
