"""The shape of the source: no import circles, no long file and no long function without a reason.

The tests: no two files of one name.

A file of more than 400 lines says in its module docstring why it is "one file". A function whose
body has more than 40 lines (its docstring not counted) has a comment that begins with
"One function:" and says why dividing it would hide the order of what it does.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
MAX_FILE_LINES, MAX_BODY_LINES = 400, 40
FILE_REASON, FUNCTION_REASON = "one file", "# One function:"


def sources() -> dict[str, str]:
    """The text of every module, by its dotted name; a package by the name of its folder."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """By module, the modules that it names in any import, also in functions and for types only."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            wanted: list[str] = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert not node.level, f"{name}: relative imports are not followed"
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [each if each in modules else node.module for each in inner]
            graph[name] |= {each for each in wanted if each in modules and each != name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules of which each leads to each other."""
    reached = {name: _reached(graph, name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - found
        found |= new
        todo += new
    return found


def long_files(modules: Mapping[str, str]) -> Iterator[str]:
    """Modules with too many lines and no reason for it."""
    for name, text in modules.items():
        reason = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
        if len(text.splitlines()) > MAX_FILE_LINES and FILE_REASON not in reason.lower():
            yield name


def long_functions(modules: Mapping[str, str]) -> Iterator[str]:
    """Functions with too many lines and no reason for it, as `module:function`."""
    for name, text in modules.items():
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            length = (body[-1].end_lineno or 0) - body[0].lineno + 1
            within = lines[node.lineno : node.end_lineno]
            if length > MAX_BODY_LINES and not any(
                line.strip().startswith(FUNCTION_REASON) for line in within
            ):
                yield f"{name}:{node.name}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert circles(imports(sources())) == set()


def test_long_files_say_why_they_are_one_file() -> None:
    assert list(long_files(sources())) == []


def test_long_functions_say_why_they_are_one_function() -> None:
    assert list(long_functions(sources())) == []


def test_each_test_file_has_a_name_of_its_own() -> None:
    # pytest imports a test file by its name alone: of two with one name it refuses the second.
    files = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, times in files.items() if times > 1] == []


def test_circles_are_found_wherever_the_import_stands() -> None:
    modules = {
        "a": "import b",
        "b": "def late():\n    from c import thing",
        "c": "if TYPE_CHECKING:\n    from a import other",
        "d": "import a",
        "p": "from p import q",
        "p.q": "import a",
    }
    assert imports(modules)["p"] == {"p.q"}
    assert circles(imports(modules)) == {frozenset("abc")}


def test_what_is_too_long_is_found_and_a_reason_excuses_it() -> None:
    rest = "\n" * (MAX_FILE_LINES + 1)
    files = {"plain": f'"""Short."""{rest}', "why": f'"""It is one\nfile because."""{rest}'}
    assert list(long_files(files)) == ["plain"]
    lines = "".join(f"    a{k} = {k}\n" for k in range(MAX_BODY_LINES + 1))
    functions = {
        "m": f'def long():\n    """Say."""\n{lines}\n'
        f"def excused():\n    # One function: in order.\n{lines}\n"
        f'def just():\n    """Say."""\n{lines.split(chr(10), 1)[1]}\n'
    }
    assert list(long_functions(functions)) == ["m:long"]
