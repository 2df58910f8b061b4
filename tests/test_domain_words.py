"""The engine, its populations and its reports contain no word of any model's domain.

A model may come from any field: what names one field belongs to the models. Help texts that name
targets as examples are excepted, phrase by phrase.
"""

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src/hotloop"
PACKAGES = ("sim", "populations", "report", "cli")
WORDS = re.compile(
    r"infect|mortal|diseas|epidem|pandem|covid|contagi|sick|illness|virus|vaccin|death|quarantin"
    r"|flock|\bbirds?\b|boid",
    re.IGNORECASE,
)
# Phrases that may stay, by file: a name that another module gives, or a help text.
ALLOWED = {
    "sim/ensemble_ray.py": ("import death", "death(error)"),
    "cli/simulate.py": ('"""covid, covid:astoria, boids, file.py:MODEL',),
    "cli/calibrate.py": (
        '"""covid, covid:astoria, file.py:MODEL',
        "day,daily_infected[,daily_deaths]",
    ),
}


def offending_lines(name: str) -> list[str]:
    """The lines of a file that name a model's domain, without the phrases that may stay."""
    text = (SOURCE / name).read_text()
    for phrase in ALLOWED.get(name, ()):
        text = text.replace(phrase, "")
    return [line.strip() for line in text.splitlines() if WORDS.search(line)]


FILES = sorted(
    path.relative_to(SOURCE).as_posix()
    for package in PACKAGES
    for path in (SOURCE / package).rglob("*")
    if path.suffix in (".py", ".html", ".css", ".js", ".jinja", ".j2")
)


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_no_models_domain(name: str) -> None:
    assert offending_lines(name) == []


@pytest.mark.parametrize(("name", "phrase"), [(n, p) for n, own in ALLOWED.items() for p in own])
def test_a_phrase_that_may_stay_is_there(name: str, phrase: str) -> None:
    assert phrase in (SOURCE / name).read_text(), "take the phrase off ALLOWED"


def test_the_words_are_found() -> None:
    for text in ("daily_infected", "a Flock of", "two birds", "COVID-19", "the deaths"):
        assert WORDS.search(text)
    for text in ("the size of a population", "wealth", "an age table", "Birdsall 1985"):
        assert not WORDS.search(text)
