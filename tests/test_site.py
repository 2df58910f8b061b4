"""The site: it builds without a warning, asks no other server for anything, and misses no page."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Only against hanging.
DEADLINE_S = 500


def build(into: Path, settings: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", settings, "--site-dir", into],
        cwd=ROOT,
        # Without the advertisement of what may come after MkDocs 1, which the versions rule out.
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert {path.relative_to(site) for path in site.rglob("*.html")} == pages | {Path("404.html")}


def test_a_page_asks_no_other_server_for_anything(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^\s>]*")
    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text()) == [], page.name
    for style in site.rglob("*.css"):
        assert "url(http" not in style.read_text(), style.name


def test_the_interface_shows_signatures_and_docstrings(site: Path) -> None:
    shown = re.sub(r"<[^>]+>", "", (site / "reference/rollout.html").read_text())
    assert "fragment_steps:" in shown
    assert "Fragments of num_workers workers" in shown


@pytest.mark.parametrize(
    "line",
    ["[gone](gone.md)", "[gone](index.md#gone)", "[gone](/index.md)", "[gone](../README.md)"],
)
def test_a_link_that_leads_nowhere_is_an_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{line}\n")
    own = (ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in own
    validation = own.split("\nvalidation:")[1].split("\n\n")[0]
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(f"site_name: x\nstrict: true\nvalidation:{validation}\n")
    done = build(tmp_path / "site", settings)
    assert done.returncode != 0
    assert "Aborted with 1 warnings in strict mode" in done.stdout + done.stderr


def examples_in_words() -> str:
    """The page of examples, made from the first sentence of each."""
    page = (DOCS / "examples.md").read_text()
    shown = [page.split("\n## ")[0].rstrip()]
    for path in sorted((ROOT / "examples").glob("*.py")):
        about = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
        sentence = " ".join(about.split())
        code = f'```python\n--8<-- "examples/{path.name}"\n```'
        shown.append(f"## {path.stem}\n\n{sentence}\n\n{code}")
    return "\n\n".join(shown) + "\n"


def test_the_page_of_examples_has_each_with_its_first_sentence() -> None:
    assert (DOCS / "examples.md").read_text() == examples_in_words()


def measured_pages() -> list[Path]:
    return [page for page in sorted((DOCS / "benchmarks").glob("*.md")) if page.stem != "index"]


@pytest.mark.parametrize("page", measured_pages(), ids=lambda page: page.stem)
def test_the_list_of_what_was_measured_has_machine_and_date_of_each_page(page: Path) -> None:
    listed = (DOCS / "benchmarks/index.md").read_text()
    row = re.search(rf"^\| \[{page.stem}\]\({page.name}\) \| ([^|]+) \|", listed, flags=re.M)
    assert row, f"docs/benchmarks/index.md: no row for {page.name}"
    where = "\n".join(page.read_text().splitlines()[:5])
    found = re.search(r"(AMD EPYC|Intel)[^\n]*?(\d) cores?(?:[^\n]*?(\d{4}-\d\d-\d\d))?", where)
    assert found, f"{page.name}: no machine in its first lines"
    machine, cores, date = found.groups()
    assert row[1].startswith(machine)
    assert cores in row[1]
    assert date is None or date in row[1]
