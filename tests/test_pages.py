"""The pages: their code runs as it stands, in the order of the page; their commands are real.

The Python blocks of a page are one program, which runs in a process of its own. Every command of
a block is parsed by the command line itself, and run in an empty folder unless `NOT_RUN` says why
not. Files that a block shows by `cat` are there, those that the page links to, and those of the
folder that has the page's name.
"""

import contextlib
import importlib
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.main import VERBS
from hotloop.errors import SettingError, TargetError
from support.command_server import CommandServer

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = str(Path(sys.executable).parent / "hotloop")
SERVER = CommandServer("torch", COMMAND)
# Only against hanging: a program ends itself after this time and says where each thread stood. On
# a fresh machine one page compiles for a minute of a core, of which it may get a small part.
LIMIT_S = 500
SHELL = ("", "sh", "bash", "console")
MEASURES = "measures for longer than ten seconds"
READERS = "is about a file, a commit or a run of the reader's"
CLUSTER = "needs Ray, and half a minute"
# (page, what its commands begin with): why they are parsed and not run.
NOT_RUN: Mapping[tuple[str, str], str] = {
    ("README.md", "simplify ppo:CartPole-v1"): MEASURES,
    ("docs/how_to/slow_env.md", "simplify train.py"): READERS,
    ("docs/how_to/slow_env.md", "benchmark CartPole-v1"): MEASURES,
    ("docs/how_to/waiting_loader.md", "simplify"): READERS,
    ("docs/how_to/waiting_loader.md", "optimize"): READERS,
    ("docs/how_to/idle_gpu.md", "benchmark train.py"): READERS,
    ("docs/how_to/idle_gpu.md", "simplify train.py"): READERS,
    ("docs/how_to/asynchronous.md", "simplify"): MEASURES,
    ("docs/how_to/gate.md", "gate"): READERS,
    ("docs/how_to/moving.md", "train"): MEASURES,
    ("docs/index.md", "simplify ppo:CartPole-v1"): MEASURES,
    ("docs/index.md", "simplify train.py"): READERS,
    ("docs/index.md", "simplify file.py:make_loop"): READERS,
    ("docs/index.md", "report"): READERS,
    ("docs/compare.md", "compare"): READERS,
    ("docs/compare.md", "gate"): READERS,
    ("docs/learners.md", "train impala:CartPole-v1"): MEASURES,
    ("docs/learners.md", "simplify impala:CartPole-v1"): MEASURES,
    ("docs/learners.md", "benchmark appo:CartPole-v1"): MEASURES,
    ("docs/optimize.md", "optimize"): MEASURES,
    ("docs/plan.md", "plan --points long.csv"): READERS,
    ("docs/plan.md", "benchmark CartPole-v1 --simulate-nodes"): CLUSTER,
    ("docs/plan.md", "plan nodes.run"): READERS,
    ("docs/repeat.md", "repeat"): READERS,
    ("docs/scripts.md", "benchmark train.py"): READERS,
    ("docs/scripts.md", "simplify"): READERS,
    ("docs/train.md", "train --resume"): MEASURES,
    ("docs/tutorial.md", ""): "is run by docs/tutorial/measure.py, which takes ten minutes",
}
# What must be there before the Python of a page begins.
BEFORE = {
    # As many logical cores as the clusters of the page have.
    "docs/ray.md": "import ray; ray.init(num_cpus=400, resources={'simulator_licence': 2},"
    " include_dashboard=False)",
}
# A page that shows a function which makes a loop has it run once.
AFTER = """
if "make_loop" in globals():
    loop = make_loop()
    assert loop.body() > 0
    if loop.close is not None:
        loop.close()
"""
# They start Ray, and workers that import TorchRL.
SLOW_PAGES = ("docs/ray.md", "docs/how_to/moving.md")


@dataclass(frozen=True)
class Block:
    """A block of code on a page; its line is that of its first line of code, from 1."""

    language: str
    line: int
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in re.finditer(r"^ *```(\w*)\n(.*?)^ *```", text, flags=re.M | re.S):
        line = text.count("\n", 0, found.start(2)) + 1
        yield Block(found[1], line, textwrap.dedent(found[2]))


def program_of(page: Path) -> str:
    """The Python blocks of a page, each at its own lines, so that an error names the page's."""
    lines = [""] * (page.read_text().count("\n") + 1)
    for block in blocks_of(page):
        if block.language == "python" and not block.text.startswith("--8<--"):
            code = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(code)] = code
    return "\n".join(lines).rstrip() if any(lines) else ""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "HOTLOOP_CONTROL"}
    return kept | {"OMP_NUM_THREADS": "1", "HOTLOOP_CACHE": "", "COLUMNS": "120"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if name_of(page) in SLOW_PAGES else [])
        for page in PAGES
        if program_of(page)
    ],
    ids=name_of,
)
def test_its_code_runs(page: Path, tmp_path: Path) -> None:
    limit = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT_S}, exit=True)"
    strict = "import warnings; warnings.simplefilter('error')"
    first = "; ".join([limit, strict, *filter(None, [BEFORE.get(name_of(page))])])
    program = program_of(page)
    assert program.startswith("\n"), f"{name_of(page)} begins with code"
    lay_out(page, tmp_path)
    script = tmp_path / f"page_{page.stem}.py"  # under a name that hides no module
    script.write_text(first + program + AFTER)
    code, _, errors = SERVER.run([], tmp_path, environment(), LIMIT_S + 60, script=script)
    assert code == 0, f"{name_of(page)} (the lines are the page's):\n{errors}"


def lay_out(page: Path, folder: Path) -> None:
    """Put into a folder what the commands of a page find there."""
    beside = page.with_suffix("")
    if beside.is_dir():
        shutil.copytree(beside, folder, dirs_exist_ok=True)
    for block in blocks_of(page):
        for file, text in re.findall(r"^\$ cat (\S+)\n((?:[^$].*\n)+)", block.text, flags=re.M):
            (folder / file).write_text(text)
    for linked in re.findall(r"\]\(([^)#:]+\.csv)\)", page.read_text()):
        shutil.copy(page.parent / linked, folder)


@dataclass(frozen=True)
class Typed:
    """A command of hotloop as a page has it, and whether it stands in a block of its own."""

    words: tuple[str, ...]
    in_block: bool


def typed_in(page: Path) -> list[Typed]:
    """The commands of a page, in its order: those in blocks, then those within sentences."""
    found = []
    for block in blocks_of(page):
        if block.language in SHELL:
            text = block.text.replace("\\\n", " ")
            for line in re.findall(r"^(?:\$ )?hotloop ([a-z].*)", text, flags=re.M):
                found.append(Typed(tuple(shlex.split(line, comments=True)), True))
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)
    for line in re.findall(r"`hotloop ([a-z]+(?:\s[^`]+)?)`", prose):
        # "hotloop process" is a row of a table of systems, and no command.
        if line != "process":
            found.append(Typed(tuple(shlex.split(line)), False))
    return found


def reason_not_to_run(page: Path, words: tuple[str, ...]) -> str | None:
    typed = " ".join(words)
    for (of, begins), reason in NOT_RUN.items():
        if of == name_of(page) and typed.startswith(begins):
            return reason
    return None


def pages_with_commands(*, in_block: bool) -> list[Path]:
    return [page for page in PAGES if any(t.in_block or not in_block for t in typed_in(page))]


def runs_of(page: Path) -> list[tuple[str, ...]]:
    """The commands of a page's blocks that are run."""
    typed = [each.words for each in typed_in(page) if each.in_block]
    return [words for words in typed if reason_not_to_run(page, words) is None]


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if runs_of(page)], ids=name_of)
def test_its_commands_run(page: Path, tmp_path: Path, checkpoint: Path) -> None:
    lay_out(page, tmp_path)
    for words in runs_of(page):
        put_checkpoints(words, tmp_path, checkpoint)
        code, _, errors = SERVER.run(words, tmp_path, environment(), LIMIT_S)
        assert code == 0, f"{name_of(page)}: hotloop {shlex.join(words)}\n{errors}"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a training of a few steps, for the commands that name one."""
    folder = tmp_path_factory.mktemp("checkpoint")
    words = ["train", "ppo:CartPole-v1", "--total-steps", "512", "--checkpoint", "a.checkpoint"]
    SERVER.run(words, folder, environment(), LIMIT_S)
    return folder / "a.checkpoint"


def put_checkpoints(words: tuple[str, ...], folder: Path, checkpoint: Path) -> None:
    for word in words:
        if word.endswith(".checkpoint") and "--checkpoint" not in words:
            (folder / word).parent.mkdir(exist_ok=True)
            shutil.copy(checkpoint, folder / word)


class Parsed(Exception):
    """The command line has taken a command; nothing of it is carried out."""


@pytest.mark.parametrize("page", pages_with_commands(in_block=False), ids=name_of)
def test_its_commands_are_taken_by_the_command_line(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(page, tmp_path)
    for typed in typed_in(page):
        verb, *words = typed.words
        assert verb in VERBS, f"{name_of(page)}: hotloop {verb}"
        where = f"{name_of(page)}: hotloop {shlex.join(typed.words)}"
        if is_whole(typed):
            put_checkpoints(typed.words, tmp_path, checkpoint)
            write_model(page, words, tmp_path)
            assert is_taken(verb, words, monkeypatch), where
        else:
            shown = help_of(verb, capsys)
            for word in words:
                assert not word.startswith("--") or word in shown, where


def is_whole(typed: Typed) -> bool:
    """Whether a command could be typed as it stands: a sentence may name a part of one."""
    if typed.in_block:
        return True
    words = typed.words[2:] if typed.words[:2] == ("repeat", "try") else typed.words[1:]
    return bool(words) and not words[0].startswith("-") and not words[-1].startswith("-")


def is_taken(verb: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the real command line parses a command; it goes no further."""
    module = importlib.import_module(f"hotloop.cli.{verb}")
    from hotloop.cli import output

    def parse_only(*arguments: Any) -> None:
        output.parse(*arguments)
        raise Parsed

    monkeypatch.setattr(module, "parse", parse_only)
    try:
        module.run(words)
    except Parsed:
        return True
    except (TargetError, SettingError) as error:
        # Where a model is meant that is not there, the options are those of the verb alone.
        if words[0] == "covid" or "model" not in str(error):
            raise
        return is_taken(verb, ["covid", *words[1:]], monkeypatch)
    except SystemExit as ended:
        return ended.code == 0
    return False


def help_of(verb: str, capsys: pytest.CaptureFixture[str], *target: str) -> str:
    with contextlib.suppress(SystemExit):
        importlib.import_module(f"hotloop.cli.{verb}").run([*target, "--help"])
    return capsys.readouterr().out


# Of pytest and its plugins, and of the model that a page makes up.
OTHERS = ("--hotloop-gate", "--benchmark-disable", "--hunger")
WITH_SETTINGS = (
    *(("train", f"{algorithm}:CartPole-v1") for algorithm in ("ppo", "appo", "impala", "apex")),
    *(("simulate", "covid"), ("calibrate", "covid"), ("repeat", "try")),
)


def test_every_option_that_a_page_names_is_one_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = "".join(help_of(verb, capsys) for verb in VERBS)
    shown += "".join(help_of(verb, capsys, target) for verb, target in WITH_SETTINGS)
    known = set(re.findall(r"--[a-z][a-z-]+", shown))
    known |= {name.replace("--no-", "--") for name in known}  # a flag that is on may be turned off
    for page in PAGES:
        for name in re.findall(r"`(--[a-z][a-z-]+)", page.read_text()):
            assert name in known or name.startswith(OTHERS), f"{name_of(page)}: {name}"


def write_model(page: Path, words: list[str], folder: Path) -> None:
    """Write the block of a page that holds a model as the file that a command names."""
    for word in words:
        file, _, name = word.partition(".py:")
        for block in blocks_of(page):
            if name and re.search(rf"^{re.escape(name)} = ", block.text, flags=re.M):
                (folder / f"{file}.py").write_text(block.text)


def test_a_reason_not_to_run_a_command_is_about_a_command_that_there_is() -> None:
    for of, begins in NOT_RUN:
        typed = [" ".join(t.words) for t in typed_in(ROOT / of) if t.in_block]
        assert any(line.startswith(begins) for line in typed), f"{of}: {begins}"


def test_every_block_says_what_it_is() -> None:
    """A block of another language would be run by nothing here."""
    known = {*SHELL, "python", "text", "yaml"}
    for page in PAGES:
        for block in blocks_of(page):
            assert block.language in known, f"{name_of(page)}:{block.line}: {block.language}"


def test_the_table_of_commands_names_every_verb_and_no_other() -> None:
    table = (ROOT / "README.md").read_text().split("## The commands")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `hotloop ([a-z]+)", table, flags=re.M)) == set(VERBS)


def test_every_link_of_the_first_page_leads_somewhere() -> None:
    readme = ROOT / "README.md"  # the links of the other pages are checked where the site is built
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", readme.read_text()):
        if "://" not in target:
            assert (ROOT / target).exists(), target
