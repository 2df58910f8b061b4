"""Whether a script uses hotloop, found in its text and in that of the modules it imports.

It is read before the script is run, so that a script without hotloop is refused at once. Nothing is
imported: modules are searched for as files.
"""

import ast
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

# Names and packages of hotloop that neither make a stage nor mark iterations.
_NO_STAGES = frozenset(
    {"data", "envs", "errors", "integrations", "make_vec", "ops", "populations", "state"}
    | {"testing", "watch"}
)
_MARK = "iterations"  # what marks them
_LOOP = "hotloop.loop"  # the package whose names are those of hotloop itself


@dataclass(frozen=True)
class Mentions:
    """How a script and its modules use hotloop.

    anything: the name occurs; stages: a function is used that makes stages, or may; iterations:
    they are marked.
    """

    anything: bool
    stages: bool
    iterations: bool


def mentions(script: Path, search: Sequence[str]) -> Mentions:
    """Read a script and the modules it imports, apart from installed packages.

    search: folders in which modules are searched for after the script's own, as `sys.path`.
    """
    anything, stages, iterations = False, False, False
    for text in _sources(script, [str(script.parent), *search]):
        if "hotloop" not in text:
            continue
        anything = True
        try:
            used = _used(ast.parse(text))
        except SyntaxError:
            stages = True  # running it gives the better error
        else:
            stages = stages or not used <= {*_NO_STAGES, _MARK}
            iterations = iterations or _MARK in used
    return Mentions(anything, stages, iterations)


def _sources(script: Path, search: list[str]) -> Iterator[str]:
    """The text of the script and of its modules, each once."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # A virtual environment may be a link to one.
    installed = [Path(folder).resolve() for folder in folders] + [Path(__file__).parents[1]]
    waiting, seen = [script], {script}
    while waiting:
        reading = waiting.pop()
        try:
            text = reading.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        yield text
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        for level, name in sorted(_imported(tree)):
            # A relative import is looked for from the module's own package, or one above it.
            folders = [str(reading.parents[level - 1])] if level else search
            for path in _files_of(name, folders):
                own = not any(path.is_relative_to(folder) for folder in installed)
                if own and path not in seen:
                    seen.add(path)
                    waiting.append(path)


def _imported(tree: ast.Module) -> set[tuple[int, str]]:
    """Dotted names that may be modules, each with the number of dots before it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
            found |= {(node.level, name) for name in names if name}
    return found


def _files_of(name: str, search: Iterable[str]) -> Iterator[Path]:
    """The source files of a dotted name: of its packages, then of the module."""
    folders: list[str] | None = list(search)
    for part in name.split("."):
        try:
            spec = PathFinder.find_spec(part, folders)
        except (ImportError, ValueError):
            return
        if spec is None:
            return
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield Path(spec.origin).resolve()
        folders = list(spec.submodule_search_locations or [])


def _used(tree: ast.Module) -> set[str]:
    """The names and packages used from hotloop, as in `from hotloop import stage`."""
    called_here: set[str] = set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "hotloop":
                    called_here.add(alias.asname or "hotloop")
                    found |= set(alias.name.split(".")[1:2])
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hotloop":
            if node.module in ("hotloop", _LOOP):
                found |= {alias.name for alias in node.names}
            else:
                found.add(str(node.module).split(".")[1])
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return found | {
        node.attr
        for node in attributes
        if isinstance(node.value, ast.Name) and node.value.id in called_here
    }
