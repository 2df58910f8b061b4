"""Options that are given several times: those that take several values have all."""

import pytest

from hotloop.cli.options import takes_several, with_all_values
from hotloop.cli.simplify import Options


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (["train.py", "--budget", "20", "--json"], ["train.py", "--budget", "20", "--json"]),
        (
            ["train.py", "--stage", "m:f", "--json", "--stage", "m:g", "--seed", "-1"],
            ["train.py", "--stage", "m:f", "m:g", "--json", "--seed", "-1"],
        ),
        (["--stage=m:f", "--stage=m:g"], ["--stage", "m:f", "m:g"]),
        (["--seed", "1", "--json", "--seed", "2"], ["--seed", "1", "--json", "--seed", "2"]),
    ],
)
def test_values_are_put_behind_the_first(given: list[str], understood: list[str]) -> None:
    assert with_all_values(given, takes_several(Options)) == understood
