"""The pages: their code runs as it stands, in the order of the page; their commands are real."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.main import VERBS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"^```python\n(.*?)^```", flags=re.M | re.S)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(page: Path) -> list[str]:
    return CODE.findall(page.read_text())


@pytest.fixture
def cluster() -> Iterator[None]:
    """Ray here, with as many logical cores as the clusters of the pages have."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=400, resources={"simulator_licence": 2}, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name == "ray.md" else [])
        for page in PAGES
        if code_of(page)
    ],
    ids=name_of,
)
def test_its_code_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if page.name == "ray.md":
        request.getfixturevalue("cluster")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOTLOOP_CACHE", "")
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(code_of(page), 1):
        exec(compile(block, f"{name_of(page)}, block {number}", "exec"), names)
    if callable(make_loop := names.get("make_loop")):
        loop = make_loop()
        assert loop.body() > 0
        if loop.close is not None:
            loop.close()


def commands_of(page: Path) -> list[list[str]]:
    """The words of every `hotloop VERB …` in a page, in a block or within a line."""
    found = re.findall(r"(?:^\$ |`|^)hotloop ([a-z]+(?: [^`\n#]+)?)", page.read_text(), flags=re.M)
    return [shlex.split(words) for words in found]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_its_commands_have_verbs_and_options_that_there_are(
    page: Path, help_of: Callable[[str], str]
) -> None:
    for verb, *words in commands_of(page):
        assert verb in VERBS, f"hotloop {verb}"
        if any(".py:" in word for word in words):
            continue  # what it declares are options too
        for word in words:
            if word.startswith("--"):
                option = word.split("=")[0].rstrip(".,;:")
                assert option in help_of(verb), f"hotloop {verb} {option}"


@pytest.fixture(scope="module")
def help_of() -> Callable[[str], str]:
    """The help text of a verb, asked for once."""
    import contextlib
    import functools
    import importlib
    import io

    @functools.cache
    def text(verb: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(f"hotloop.cli.{verb}").run(["--help"])
        return printed.getvalue()

    return text


def test_the_table_of_commands_names_every_verb_and_no_other() -> None:
    table = (ROOT / "README.md").read_text().split("## The commands")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `hotloop ([a-z]+)", table, flags=re.M)) == set(VERBS)


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name_of(page)}: {target}"
