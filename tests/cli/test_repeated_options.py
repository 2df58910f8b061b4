"""Options that are given several times: none of their values is dropped in silence."""

import pytest

from hotloop.cli.output import joined


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        (["train.py", "--budget", "20", "--json"], ["train.py", "--budget", "20", "--json"]),
        (
            ["train.py", "--stage", "m:f", "--json", "--stage", "m:g", "--seed", "-1"],
            ["train.py", "--stage", "m:f", "m:g", "--json", "--seed", "-1"],
        ),
        (["--stage=m:f", "--stage=m:g"], ["--stage", "m:f", "m:g"]),
        (["--max_lag", "1", "--max-lag", "2"], ["--max-lag", "1", "2"]),
        (["--json", "--json"], ["--json"]),
    ],
)
def test_values_are_put_behind_the_first(given: list[str], understood: list[str]) -> None:
    assert joined(given) == understood
