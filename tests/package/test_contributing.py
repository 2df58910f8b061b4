"""The recipes of CONTRIBUTING.md name what there is."""

import re

import pytest

from support.installed import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## (A [^\n]+)\n(.*?)(?=^## |\Z)", TEXT, flags=re.M | re.S))
# A table or function that a recipe names, and the file that has it.
NAMED = re.findall(
    r"`([A-Za-z_]+)` (?:of|in) `((?:src|tests)/\S+?\.py)`", re.sub(r"\s+", " ", TEXT)
)


def test_there_are_the_four_recipes() -> None:
    assert list(RECIPES) == ["A backend of vector envs", "A model", "A verb", "A lever"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_the_files_and_the_test(recipe: str) -> None:
    assert "Tests:" in RECIPES[recipe]
    assert re.search(r"`src/hotloop/\S+`", RECIPES[recipe])
    assert re.search(r"`tests/\S+\.py`", RECIPES[recipe])


def test_every_path_is_there() -> None:
    for place in re.findall(r"`((?:src|tests|docs|benchmarks)/[^`\s]*)`", TEXT):
        assert "NAME" in place or (ROOT / place).exists(), place
    for place in re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT):
        assert (ROOT / place).exists(), place


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_a_name_stands_in_the_file_that_it_is_looked_for_in(name: str, file: str) -> None:
    pattern = rf"^(?:def |class )?{name}\b"
    assert re.search(pattern, (ROOT / file).read_text(), flags=re.M), f"{file}: {name}"


def test_names_were_looked_for() -> None:
    assert {"BACKENDS", "VERBS", "KINDS", "BUILT_IN", "levers_of"} <= {
        name for name, _ in NAMED
    } | set(re.findall(r"`(\w+)`", TEXT))


def test_the_commands_of_make_are_there() -> None:
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", TEXT, flags=re.M)) <= rules
