"""`hotloop benchmark ENV_ID --backends`: the table, its run, and what is refused."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.benchmark import run as benchmark
from hotloop.errors import HotloopError, SettingError, TargetError
from hotloop.loop.run import load

VARIANTS = [
    ("serial", None, 1),
    ("native", None, 1),
    ("process", 1, 1),
    ("process", 2, 1),
    ("process", 1, 2),
]


@pytest.fixture(scope="module")
def swept(hotloop: Callable, shared_project: Path) -> Any:
    """What the command printed when it saved `sweep.run`."""
    backends = ("--backends", "serial,native,process,auto", "--num-envs", 2, "--seconds", "0.1")
    return hotloop("benchmark", "CartPole-v1", *backends, "--save", "sweep.run", cwd=shared_project)


@pytest.mark.long
def test_the_answer_comes_first_and_the_run_is_saved(swept: Any, shared_project: Path) -> None:
    assert swept.code == 0, swept.err
    first, best, *rest = swept.out.splitlines()
    assert first.startswith("CartPole-v1  2 envs")
    assert best.startswith("best   ")
    # Wide intervals make the line of the best one go on in the next.
    assert any(line.startswith("auto   chose ") for line in rest[:2])
    assert "run saved: hotloop report sweep.run" in swept.err
    run = load(shared_project / "sweep.run")
    assert (run.verb, run.complete) == ("backends", True)
    assert run.settings["num_envs"] == 2
    assert run.settings["seconds"] == 0.1
    found = [(v["backend"], v["num_workers"], v["splits"]) for v in run.facts["variants"]]
    assert found[:-1] == VARIANTS
    assert run.arrays["sps"].shape[0] == len(found)
    # On a busy machine a worker may not get a turn within one of the short windows.
    assert (run.arrays["sps"] >= 0).all()
    assert (run.arrays["sps"].max(axis=1) > 0).all()


def test_it_is_drawn_again_byte_for_byte(
    hotloop: Callable, swept: Any, shared_project: Path
) -> None:
    again = hotloop("report", "sweep.run", cwd=shared_project)
    assert again.code == 0, again.err
    assert again.out == swept.out


def test_it_stands_in_the_page(hotloop: Callable, swept: Any, shared_project: Path) -> None:
    done = hotloop("report", "sweep.run", "--html", "page.html", cwd=shared_project)
    assert done.code == 0, done.err
    page = (shared_project / "page.html").read_text()
    assert "Which backend steps CartPole-v1 fastest" in page
    assert 'class="chart wide backends"' in page


def test_json_of_the_report_holds_every_variant(
    hotloop: Callable, swept: Any, shared_project: Path
) -> None:
    done = hotloop("report", "sweep.run", "--json", cwd=shared_project)
    table = json.loads(done.out)
    assert [row["backend"] for row in table["rows"]] == [*(v[0] for v in VARIANTS), "auto"]
    rates = [row["sps"]["value"] for row in table["rows"][:-1]]
    assert table["best"] == rates.index(max(rates))
    serial = table["rows"][0]["sps"]
    assert serial["low"] <= serial["value"] <= serial["high"]


def test_json_is_alone_and_what_failed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--backends", "serial,native", "--num-envs", "1", "--seconds", "0.03", "--json"]
    assert benchmark(["Acrobot-v1", *arguments]) == 0
    serial, native = json.loads(capsys.readouterr().out)["rows"]
    assert serial["sps"]["value"] > 0
    assert native["sps"] == {
        "value": None,
        "unknown": "the env has no vector env of its own (vector_entry_point)",
    }


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ("CartPole-v1 --backends seriel", SettingError, "did you mean 'serial'"),
        ("CartPole-v1 --backends serial,,ray", SettingError, "got ''"),
        ("CartPole-v1 --backends all --num-envs 0", SettingError, "num_envs: expected a number"),
        (
            "ppo:CartPole-v1 --backends all",
            SettingError,
            "names a loop; did you mean 'CartPole-v1'",
        ),
        ("loops.py:two_stages --backends all", SettingError, "names a loop"),
        ("plain.py --backends all", SettingError, "names a loop"),
        ("CartPole-v1 --backends all -- --code 3", SettingError, "arguments after --"),
        ("CartPole-v1 --backends all --iterations 3", SettingError, "--iterations: expected"),
        ("CartPole-v1 --backends all --price_per_hour 3", SettingError, "--price-per-hour: exp"),
        ("loops.py:two_stages --num-envs 64", SettingError, "--num-envs: expected --backends"),
        ("CartPol-v1 --backends all", TargetError, "did you mean 'CartPole-v1'"),
        ("nosuch:Env-v0 --backends all", TargetError, "an id that Gymnasium knows"),
        ("Acrobot-v1 --backends native", TargetError, "no backend could step it; native: the env"),
    ],
)
def test_bad_input_is_refused(
    arguments: str,
    kind: type[HotloopError],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as raised:
        benchmark(arguments.split())
    assert words in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("target", "code"), [("ppo:CartPole-v1", 2), ("CartPol-v1", 1)])
def test_bad_input_ends_in_one_message(
    hotloop: Callable, tmp_path: Path, target: str, code: int
) -> None:
    done = hotloop("benchmark", target, "--backends", "serial", cwd=tmp_path)
    assert done.code == code
    assert len(done.messages) == 1
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.long
def test_an_interrupted_sweep_keeps_what_it_measured(
    start: Callable, hotloop: Callable, project: Path
) -> None:
    # The env stands in a module of the folder that the user is in.
    options = ("--backends", "serial,process", "--num-envs", 1, "--seconds", 1000)
    command = start("benchmark", "slow_envs:Slow-v0", *options, cwd=project)
    command.wait_for("measuring")
    assert len(command.children) >= 1
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == 130
    assert done.messages == ["hotloop: interrupted"]
    assert command.alive() == []
    (path,) = (project / ".hotloop").glob("*.run")
    run = load(path)
    assert not run.complete
    assert (run.arrays["sps"] > 0).any()
    again = hotloop("report", path, cwd=project)
    assert again.out == done.out
    assert "the sweep was interrupted" in done.out
