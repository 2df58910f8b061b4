"""Whose a file of code is."""

import pytest

from hotloop.loop.code import is_users_file

INSTALLED = ".venv/lib/python3.11/site-packages"


@pytest.mark.parametrize("project", ["/home/a/project", "/home/a/hotloop"])
@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("train.py", True),
        (f"{INSTALLED}/torch/nn/modules/module.py", False),
        (f"{INSTALLED}/hotloop_envs/pole.py", False),
        (f"{INSTALLED}/hotloop/envs/cartpole.py", True),  # as in a checkout
    ],
)
def test_libraries_are_none_of_the_users_whatever_the_folder_is_called(
    project: str, file: str, users: bool
) -> None:
    assert is_users_file(f"{project}/{file}") == users
