"""The forms for issues ask for what an answer needs."""

import shlex

import pytest
import yaml

from hotloop.cli.main import VERBS
from support.installed import ROOT

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
FIELDS = {"textarea", "input", "dropdown", "checkboxes", "markdown"}


def forms() -> list[str]:
    return [form.name for form in FORMS if form.name != "config.yml"]


def test_there_is_no_issue_without_a_form() -> None:
    config = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())
    assert config == {"blank_issues_enabled": False}
    assert len(forms()) >= 2


@pytest.mark.parametrize("name", forms())
def test_a_form_asks_for_what_the_machine_can_measure(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / name).read_text())
    assert {"name", "description", "body"} <= set(form)
    fields = {field["id"]: field for field in form["body"]}
    assert len(fields) == len(form["body"]), "two fields of one id"
    assert {field["type"] for field in fields.values()} <= FIELDS
    assert "`hotloop doctor`" in fields["doctor"]["attributes"]["label"]
    assert fields["doctor"]["validations"]["required"] is True


@pytest.mark.parametrize("name", forms())
def test_the_commands_that_a_form_names_are_real(name: str) -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE" / name).read_text()
    for typed in text.split("`hotloop ")[1:]:
        verb = shlex.split(typed.split("`")[0])[0]
        assert verb in VERBS or verb == "--version"
