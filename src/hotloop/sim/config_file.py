"""A YAML file as plain data, with the line of every value.

`${a.b.c}` is replaced by the value at that place, as a whole or within a string. All keys are
strings.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hotloop.errors import ConfigError, nearest

MOST_REPEATED = 100_000  # a few lines of aliases or references can repeat any number of values
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")


@dataclass
class ConfigFile:
    """Data read from a file, references resolved.

    lines: from a dotted place to its line, from 1. referenced: places that some `${…}` names.
    """

    path: Path
    data: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)
    _repeated: int = 0

    def repeat(self, place: str) -> None:
        """Count one more value that an alias or reference repeats.

        Raises: ConfigError beyond `MOST_REPEATED`.
        """
        self._repeated += 1
        if self._repeated > MOST_REPEATED:
            raise self.error(
                place,
                f"aliases (*) and references (${{…}}) stand for more than {MOST_REPEATED:,} "
                "values: expected fewer; nested ones multiply",
            )

    def error(self, place: str, message: str) -> ConfigError:
        """Make an error about a place in the file."""
        known = place
        while known not in self.lines and "." in known:
            known = known.rpartition(".")[0]
        line = f":{self.lines[known]}" if known in self.lines else ""
        return ConfigError(f"{self.path}{line}: {place + ': ' if place else ''}{message}")


@dataclass(frozen=True)
class Section:
    """One mapping of a file, with checked access."""

    file: ConfigFile
    place: str
    data: Mapping[str, Any]

    def error(self, key: str, message: str) -> ConfigError:
        """Make an error about a key of this mapping; "" is the mapping itself."""
        return self.file.error(".".join(filter(None, (self.place, key))), message)

    def check_keys(self, known: Collection[str], required: Collection[str] = ()) -> None:
        """Refuse keys that do not exist and missing ones that must.

        Raises: ConfigError, with the nearest key.
        """
        for key in self.data:
            if key not in known:
                raise self.error(key, f"no such field{nearest(key, known)}")
        for key in required:
            if self.data.get(key) is None:
                raise self.error("", f"the field {key!r} is missing")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; null counts as missing."""
        value = self.data.get(key)
        return default if value is None else value

    def section(self, key: str) -> "Section":
        """Return the mapping below a key; empty where there is none.

        Raises: ConfigError for a value that is no mapping.
        """
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"expected a mapping, got {value!r}")
        return Section(self.file, ".".join(filter(None, (self.place, key))), value)

    def sections(self) -> Iterator[tuple[str, "Section"]]:
        """Iterate over every key with the mapping below it."""
        for key in self.data:
            yield key, self.section(key)

    def whole_number(self, key: str, default: int | None = None) -> int | None:
        """Return a whole number of 1 or more.

        Raises: ConfigError for anything else.
        """
        value = self.get(key, default)
        if value is not None and (type(value) is not int or value < 1):
            raise self.error(key, f"expected a whole number of 1 or more, got {value!r}")
        return value


def read_config(path: Path, sections: Collection[str]) -> ConfigFile:
    """Read a YAML file; nothing in it is run.

    sections: the keys that it may have at the top, checked before references are resolved.

    Raises: ConfigError for a file that cannot be read, invalid YAML, a key given twice, and
    references that lead nowhere or form a circle.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    file = ConfigFile(path, {})
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        loader = yaml.SafeLoader("")
        raw = _plain(root, "", file, loader, (), set()) if root is not None else {}
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping with state and substeps, got {raw!r}")
    Section(file, "", raw).check_keys(sections)
    file.data = _resolved(raw, "", raw, file, ())
    return file


def _plain(
    node: yaml.Node,
    place: str,
    file: ConfigFile,
    loader: yaml.SafeLoader,
    above: tuple[int, ...],
    seen: set[int],
) -> Any:
    """Convert a node to plain data and note its lines.

    above, seen: the nodes around and before it.
    """
    file.lines.setdefault(place, node.start_mark.line + 1)
    if id(node) in seen:
        file.repeat(place)
    seen.add(id(node))
    if id(node) in above:
        raise file.error(place, "an alias (*) that contains itself")
    above = (*above, id(node))
    if not isinstance(node, yaml.ScalarNode) and not node.tag.endswith((":map", ":seq")):
        raise file.error(place, f"not YAML of plain values: the tag {node.tag!r}")
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node, deep=True))
            below = f"{place}.{key}" if place else key
            if key in found:
                file.lines[below] = key_node.start_mark.line + 1
                raise file.error(below, "given twice")
            file.lines[below] = key_node.start_mark.line + 1
            found[key] = _plain(value_node, below, file, loader, above, seen)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [
            _plain(item, f"{place}.{i}" if place else str(i), file, loader, above, seen)
            for i, item in enumerate(node.value)
        ]
    return loader.construct_object(node, deep=True)


def _resolved(
    value: Any, place: str, root: dict[str, Any], file: ConfigFile, following: tuple[str, ...]
) -> Any:
    """Replace every reference in `value`.

    following: the references that led here.
    """
    if following:
        file.repeat(place)
    if isinstance(value, dict):
        return {
            k: _resolved(v, f"{place}.{k}" if place else k, root, file, following)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_resolved(v, f"{place}.{i}", root, file, following) for i, v in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def target(reference: str) -> Any:
        if reference in following:
            circle = " -> ".join((*following[following.index(reference) :], reference))
            raise file.error(place, f"references go round in a circle: {circle}")
        file.referenced.add(reference)
        found = _at(reference, root)
        if found is _NOTHING:
            known = [line for line in file.lines if line]
            raise file.error(place, f"${{{reference}}} leads nowhere{nearest(reference, known)}")
        return _resolved(found, place, root, file, (*following, reference))

    whole = _REFERENCE.fullmatch(value)
    if whole:
        return target(whole[1].strip())
    filled = _REFERENCE.sub(lambda match: str(target(match[1].strip())), value)
    if "${" in filled:
        raise file.error(place, f"{value!r}: a reference is written ${{place.in.this.file}}")
    return filled


_NOTHING = object()


def _at(reference: str, root: Any) -> Any:
    found = root
    for key in reference.split("."):
        if isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return _NOTHING
    return found
