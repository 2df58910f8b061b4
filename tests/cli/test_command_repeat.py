"""`hotloop repeat`: every run is noted, a try is measured and noted, and the staircase is shown."""

import json
import shlex
import signal
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hotloop.loop.run import load
from hotloop.repeat.entries import GAIN, OVERLAP, RATE, Metric, RunEntry, gain_at
from hotloop.repeat.journal import FORMAT, Contents, Journal
from hotloop.report.kinds import kind_of
from support.disks import on_disk
from support.git import git

TARGET = "steps.py:make"
# The time of an iteration is nearly all in `load`.
LOOP = """
import hotloop


def spin(turns):
    total = 0
    for turn in range(turns):
        total += turn
    return total


def make():
    load = hotloop.stage("load", spin, effect="pure")
    train = hotloop.stage("train", spin, effect="pure")

    def iterate():
        load({turns})
        train(500)
        return 10

    return hotloop.Loop(body=iterate, unit="samples")
"""
SLOW, FAST = 12_000, 3_000
# Notes each run of it, and stays in the eighth one until it is interrupted.
STAYING = """
import pathlib, time
runs = pathlib.Path("runs")
count = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (count + 1))
if count == 8:
    pathlib.Path("measuring").touch()
    time.sleep(600)
"""


def journal_of(folder: Path) -> Journal:
    return Journal(folder / ".hotloop" / "journal.db")


def noted(folder: Path) -> Contents:
    return journal_of(folder).contents()


def planted(folder: Path, gain: float = 0.7, **changes: Any) -> None:
    """Note an experiment on the target, as if it had been made."""
    metrics = {
        RATE: Metric(10e3, 9e3, 11e3, "samples/s"),
        GAIN + "load": Metric(gain, gain - 0.02, gain + 0.02),
        gain_at(2, "load"): Metric(gain / 2, gain / 2 - 0.01, gain / 2 + 0.01),
        GAIN + "train": Metric(0.01, 0.0, 0.02),
        OVERLAP: Metric(0.02, -0.1, 0.12),
    }
    host = {"processor": "one", "cores": 2, "memory_bytes": 2**30, "python": "3.11"}
    entry: dict[str, Any] = {
        "at": "2026-11-23T10:00:00+00:00",
        "verb": "simplify",
        "target": TARGET,
        "metrics": metrics,
        "host": host | {"date": "2026-11-23T10:00:00+00:00"},
        "settings": {"worth": 0.03},
        "seconds": 30.0,
    }
    journal_of(folder).add(RunEntry(**entry | changes))


@dataclass
class Tried:
    """A folder in which a change was tried and kept, and then one that was reverted."""

    folder: Path
    first: Any
    second: Any


@pytest.fixture(scope="module")
def tried(hotloop: Callable, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("tried")
    git(folder, "init", "-q")
    (folder / "steps.py").write_text(LOOP.format(turns=SLOW))
    (folder / ".gitignore").write_text(".hotloop/\n__pycache__/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "slow")
    planted(folder)
    (folder / "steps.py").write_text(LOOP.format(turns=FAST))
    versions = ("--target", TARGET, "--before", "HEAD")
    first = hotloop(
        *("repeat", "try", "load less", *versions, "--stage", "load"),
        *("--effort-hours", "2", "--budget", "300"),
        cwd=folder,
    )
    second = hotloop(
        *("repeat", "try", "load less, again", *versions, "--predicted", "10%", "--revert"),
        *("--budget", "300", "--save", "second.run", "--json"),
        cwd=folder,
    )
    return Tried(folder, first, second)


# --- a try --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_faster_change_is_kept_and_its_prediction_is_said(tried: Tried) -> None:
    assert tried.first.code == 0, tried.first.err
    assert tried.first.out.startswith("faster")
    assert "kept  predicted 70.0% [68.0, 72.0], achieved " in tried.first.out
    assert tried.first.messages == []


def test_a_try_is_noted_with_all_that_is_known(tried: Tried) -> None:
    first, second = noted(tried.folder).tries
    assert (first.hypothesis, first.target) == ("load less", TARGET)
    commit = git(tried.folder, "rev-parse", "HEAD")[:12]
    assert (first.before, first.after) == (f"{TARGET} at HEAD ({commit})", f"{TARGET} as it is")
    assert (first.verdict, first.decision) == ("faster", "kept")
    assert first.stage == "load"
    assert first.predicted == noted(tried.folder).runs[0].metrics[GAIN + "load"]
    assert first.effort_hours == 2
    assert first.achieved is not None
    assert first.achieved.low is not None
    assert 0.0 < first.achieved.low < first.achieved.value < 1
    assert (second.verdict, second.decision) == ("faster", "reverted")
    assert (second.stage, second.predicted, second.effort_hours) == (None, Metric(0.1), None)


def test_its_comparison_is_a_run_that_is_noted_and_saved(hotloop: Callable, tried: Tried) -> None:
    contents = noted(tried.folder)
    _, first, second = contents.runs
    assert [each.run for each in contents.tries] == [first.number, second.number]
    assert first.commit == git(tried.folder, "rev-parse", "HEAD")
    assert first.diff_hash is not None  # the working tree is not what was committed
    assert first.verb == "compare"
    assert set(first.metrics) == {"ratio", "rate A", "rate B", "seconds"}
    assert first.file is not None
    assert second.file == "second.run"
    for run, ended in ((first, tried.first), (second, None)):
        again = hotloop("report", run.file, cwd=tried.folder)
        assert again.code == 0, again.err
        assert ended is None or ended.out.startswith(again.out)


def test_a_page_of_runs_has_the_tries_of_their_target_too(hotloop: Callable, tried: Tried) -> None:
    words = ("report", "second.run", "--tries")
    page = tried.folder / "page.html"
    drawn = hotloop(*words, "--html", str(page), cwd=tried.folder)
    assert drawn.code == 0, drawn.err
    text = page.read_text()
    for part in ("Which is faster", "The staircase", "How predictions came true", "load less"):
        assert part in text
    printed = hotloop(*words, cwd=tried.folder)
    assert "load less, again" in printed.out
    parts = json.loads(hotloop(*words, "--json", cwd=tried.folder).out)
    assert [part.get("target") for part in parts][-1] == TARGET


def test_without_a_try_there_is_nothing_to_show(hotloop: Callable, tried: Tried) -> None:
    empty = tried.folder / "elsewhere"
    empty.mkdir()
    planted(empty)
    refused = hotloop("report", "../second.run", "--tries", cwd=empty)
    assert refused.code == 2
    assert "--tries: the journal of this folder has no try of" in refused.err


def test_as_json_it_has_the_comparison_and_the_try(tried: Tried) -> None:
    said = json.loads(tried.second.out)
    assert said["comparison"]["verdict"] == "faster"
    assert said["try"]["decision"] == "reverted"
    assert said["try"]["predicted"]["value"] == 0.1
    ratio = said["comparison"]["ratio"]
    assert said["try"]["achieved"]["high"] == pytest.approx(1 - ratio["low"])


def test_what_is_kept_can_be_said_and_an_own_staircase_goes_on_from_it(
    hotloop: Callable, tmp_path: Path
) -> None:
    python, (a, b, c) = shlex.quote(sys.executable), ("a.py", "b.py", "c.py")
    for name in (a, b, c):
        (tmp_path / name).write_text("")
    briefly = ("--keep", "--budget", "0.001")
    for words in (
        ("one", f"{python} {a}", f"{python} {b}"),
        ("two", f"{python} {b}", f"{python} {c}"),
    ):
        what, before, after = words
        done = hotloop(
            *("repeat", "try", what, "--before", before, "--after", after, *briefly), cwd=tmp_path
        )
        assert done.code == 0, done.err
        assert "kept  predicted nothing, achieved unknown" in done.out
    one, two = noted(tmp_path).tries
    assert one.verdict == two.verdict == "cannot say"
    assert one.decision == two.decision == "kept"
    assert one.target == two.target == f"{python} {a}"


def test_what_is_not_known_to_be_faster_is_reverted(hotloop: Callable, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    side = f"{shlex.quote(sys.executable)} a.py"
    sides = ("--before", side, "--after", side)
    done = hotloop("repeat", "try", "nothing", *sides, "--budget", "0.001", cwd=tmp_path)
    assert done.code == 0, done.err
    (entry,) = noted(tmp_path).tries
    assert (entry.verdict, entry.decision, entry.achieved) == ("cannot say", "reverted", None)


@pytest.mark.long
def test_an_interrupted_try_keeps_what_was_measured_and_is_not_noted_as_a_try(
    start: Callable, hotloop: Callable, tmp_path: Path
) -> None:
    (tmp_path / "staying.py").write_text(STAYING)
    side = f"{shlex.quote(sys.executable)} staying.py"
    command = start(
        "repeat", "try", "wait", "--before", side, "--after", side, "--budget", 10**6, cwd=tmp_path
    )
    command.wait_for("measuring")
    command.process.send_signal(signal.SIGINT)
    done = command.end()
    assert done.code == 130
    assert done.messages == ["hotloop: interrupted"]
    assert "partial run saved" in done.err
    assert "the try is not noted: its comparison was cut short" in done.err
    assert command.alive() == []
    contents = noted(tmp_path)
    assert contents.tries == []
    (run,) = contents.runs
    assert not run.complete
    assert run.file is not None
    assert not load(tmp_path / run.file).complete
    assert hotloop("report", run.file, cwd=tmp_path).code == 0


SIDES = ("--before", "python a.py", "--after", "python b.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("", *SIDES), "expected a few words"),
        (("x",), "--before: expected"),
        (("x", "--before", "python a.py"), "--after: expected"),
        (("x", *SIDES, "--keep", "--revert"), "--keep and --revert: expected one"),
        (("x", *SIDES, "--predicted", "100%"), "--predicted: expected less than 100%"),
        (("x", *SIDES, "--predicted", "12"), "--predicted: expected a share above 0"),
        (("x", *SIDES, "--predicted", "lots"), "--predicted: expected a share above 0, such as 3%"),
        (("x", *SIDES, "--predicted", "nan%"), "--predicted: expected a share"),
        (("x", *SIDES, "--predicted", "1%", "--stage", "a"), "--predicted and --stage"),
        (("x", *SIDES, "--stage", "load"), "run `hotloop simplify"),
        (("x", *SIDES, "--effort-hours", "0"), "--effort-hours: expected a number above 0"),
        (("x", *SIDES, "--margin", "0%"), "--margin: expected a share above 0"),
        (("x", *SIDES, "--budget", "0"), "budget: expected a number above 0"),
        (("x", *SIDES, "--shared-environment"), "--shared-environment: expected --target"),
        (("x", "--target", TARGET, "--before", "HEAD"), "in no git repository"),
        (("x", "--before", "no_such_target 1", "--after", "b"), "expected settings as name=value"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    hotloop: Callable, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = hotloop("repeat", "try", *words, cwd=tmp_path)
    assert done.code == 2
    (message,) = done.messages
    assert said in message
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_stage_is_refused_with_the_nearest(hotloop: Callable, tmp_path: Path) -> None:
    planted(tmp_path)
    sides = ("--before", TARGET, "--after", TARGET)
    done = hotloop("repeat", "try", "x", *sides, "--stage", "laod", cwd=tmp_path)
    assert done.code == 2
    assert "no gain of a stage 'laod'" in done.messages[0]
    assert "did you mean 'load'?" in done.messages[0]
    assert len(noted(tmp_path).runs) == 1


def test_a_journal_that_cannot_be_used_is_said_before_a_try_is_measured(
    hotloop: Callable, tmp_path: Path
) -> None:
    planted(tmp_path)
    with sqlite3.connect(journal_of(tmp_path).path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    sides = ("--before", "no_such.py", "--after", "no_such.py")
    for words in (("try", "x", *sides), ()):
        done = hotloop("repeat", *words, cwd=tmp_path)
        assert done.code == 1
        (message,) = done.messages
        assert "was written by a newer hotloop" in message
    assert [path.name for path in (tmp_path / ".hotloop").iterdir()] == ["journal.db"]


# --- the staircase ------------------------------------------------------------------------------


def test_the_staircase_shows_every_try_and_how_it_was_predicted(
    hotloop: Callable, tried: Tried
) -> None:
    before = journal_of(tried.folder).path.read_bytes()
    done = hotloop("repeat", cwd=tried.folder)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith(f"{TARGET}  2 tries, 1 kept: ")
    assert lines[1].startswith("cannot say  whether to stop, without --hours, --price-per-hour and")
    assert lines[2].startswith("next  load: up to 70.0% [68.0, 72.0] of the time, if it were free")
    assert "120 for 2 h of work at 60 an hour" in done.out
    (first,) = [line for line in lines if "load less  " in line and "achieved" not in line]
    (second,) = [line for line in lines if "load less, again" in line]
    assert "70.0% [68.0, 72.0]" in first
    assert "kept" in first
    assert "10.0%" in second
    assert "reverted, faster" in second
    assert "2 predictions; " in done.out
    assert "measured before the last change that was kept" in done.out
    assert journal_of(tried.folder).path.read_bytes() == before


def test_it_says_to_go_on_with_what_that_saves_and_at_which_prices(
    hotloop: Callable, tried: Tried
) -> None:
    money = ("--hours", "1000", "--price-per-hour", "2", "--effort-hours", "3")
    done = hotloop("repeat", *money, cwd=tried.folder)
    flat = " ".join(done.out.split())
    assert (
        "go on load may save 1.4k (70.0% [68.0, 72.0] of 1k h at 2 an hour), at best 1.44k" in flat
    )
    assert "its effort costs 180 (3 h of work at 60 an hour)" in flat
    assert "a million samples" in done.out


def test_it_says_to_stop_where_the_effort_costs_more(hotloop: Callable, tried: Tried) -> None:
    money = ("--hours", "1", "--price-per-hour", "2", "--effort-hours", "1")
    work = ("--effort-price-per-hour", "80")
    done = hotloop("repeat", *money, *work, cwd=tried.folder)
    flat = " ".join(done.out.split())
    assert "stop at best, load saves 1.44 (72.0% of 1 h at 2 an hour), less than the effort" in flat
    assert "effort costs 80 (1 h of work at 80 an hour)" in flat


def test_a_rate_that_only_its_value_meets_is_said_to_do_so(hotloop: Callable, tried: Tried) -> None:
    done = hotloop("repeat", "--target-rate", "1", cwd=tried.folder)
    flat = " ".join(done.out.split())
    assert "go on the target rate of 1 samples/s is not met for certain" in flat
    assert "its lower limit is not known" in flat


def test_a_target_rate_and_a_near_ceiling_stop_it(hotloop: Callable, tmp_path: Path) -> None:
    planted(tmp_path, gain=0.005)
    met = hotloop("repeat", "--target-rate", "9000", cwd=tmp_path)
    assert "stop  the target rate of 9k samples/s is met: 10.0k [9.0, 11.0]" in met.out
    near = hotloop("repeat", "--target-rate", "9001", cwd=tmp_path)
    flat = " ".join(near.out.split())
    assert "stop the ceiling is near: the best stage, train, saves at most 2.0%" in flat
    assert "all stages side by side 2.0%; 3.0% would count" in flat
    assert "no try is noted yet" in flat


def test_as_json_it_has_everything(hotloop: Callable, tried: Tried) -> None:
    done = hotloop("repeat", "--json", "--hours", "9", "--price-per-hour", "2", cwd=tried.folder)
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["target"] == TARGET
    assert [step["kept"] for step in said["staircase"]["steps"]] == [True, False]
    first = noted(tried.folder).tries[0]
    assert first.achieved is not None
    assert said["time"] == pytest.approx(1 - first.achieved.value)
    assert len(said["calibration"]["predictions"]) == 2
    assert said["next_try"]["name"] == "load"
    assert said["next_try"]["gain"]["high"] == 0.72
    assert said["decision"]["verdict"] == "cannot say"
    assert said["decision"]["missing"] == ["--effort-hours"]
    assert said["spent"]["effort"] == 120
    assert said["cost_so_far"] == pytest.approx(120 + said["spent"]["runs"])
    assert said["said"]["why"] == "whether to stop, without --effort-hours"


def test_as_a_page_it_has_both_charts_and_is_the_same_each_time(
    hotloop: Callable, tried: Tried, tmp_path: Path
) -> None:
    pages = []
    for name in ("a.html", "b.html"):
        done = hotloop(
            "repeat", "--price-per-hour", "2", "--html", tmp_path / name, cwd=tried.folder
        )
        assert done.code == 0, done.err
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]
    for part in (
        'id="r0-staircase-720-title"',
        'id="r0-calibration-340-title"',
        "load less, again",
    ):
        assert part in pages[0]
    assert "cost of a million samples" in pages[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target", "steps.py"), "did you mean 'steps.py:make'?"),
        (("--hours", "-1"), "--hours: expected a number above 0"),
        (("--effort-price-per-hour", "0"), "--effort-price-per-hour: expected a number above 0"),
        (("--html", "."), "--html: . is a folder"),
    ],
)
def test_bad_settings_are_refused(
    hotloop: Callable, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    planted(tmp_path)
    done = hotloop("repeat", *words, cwd=tmp_path)
    assert done.code == 2
    (message,) = done.messages
    assert said in message


def test_an_empty_journal_says_how_to_begin(hotloop: Callable, tmp_path: Path) -> None:
    done = hotloop("repeat", cwd=tmp_path)
    assert done.code == 1
    (message,) = done.messages
    assert "is noted here yet: `hotloop simplify TARGET` finds what to change" in message
    assert list(tmp_path.iterdir()) == []


# --- every run is noted -------------------------------------------------------------------------

BRIEFLY = ("--seconds", "0.5")


def test_a_benchmark_is_noted_with_its_cost(hotloop: Callable, project: Path) -> None:
    words = ("benchmark", "loops.py:two_stages", *BRIEFLY, "--price-per-hour", "7.2")
    done = hotloop(*words, cwd=project)
    assert done.code == 0, done.err
    (run,) = noted(project).runs
    assert (run.verb, run.target, run.complete) == ("benchmark", "loops.py:two_stages", True)
    assert run.metrics[RATE].unit == "samples/s"
    assert run.metrics[RATE].low is not None
    assert run.seconds is not None
    assert run.cost == pytest.approx(run.seconds * 7.2 / 3600)
    assert run.host["command"].startswith("hotloop benchmark")
    assert run.settings["seconds"] == 0.5
    assert (run.commit, run.diff_hash) == (None, None)
    assert run.file is not None
    assert (project / run.file).exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("benchmark", "CartPole-v1", "--backends", "serial", "--num-envs", "2", *BRIEFLY),
         {"rate: serial", "seconds"}),
        (("train", "ppo:CartPole-v1", "--total-steps", "256", "--num-envs", "2",
          "--evaluate-every", "128"), {"seconds"}),
        (("simulate", "boids", "--birds", "200", "--steps", "2", "--replicates", "2"),
         {"rate", "seconds"}),
        (("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "here.run"),
         {"rate", "seconds", "first batch", "cores in use", "peak memory"}),
    ],
    ids=["backends", "train", "simulate", "saved elsewhere"],
)  # fmt: skip
def test_runs_of_every_kind_are_noted(
    hotloop: Callable, project: Path, words: tuple[str, ...], names: set[str]
) -> None:
    done = hotloop(*words, cwd=project)
    assert done.code == (words[0] == "train"), done.err  # 256 steps solve nothing
    (run,) = noted(project).runs
    assert run.verb == ("backends" if "--backends" in words else words[0])
    assert names <= set(run.metrics)
    assert run.seconds is not None
    assert run.seconds > 0


@pytest.mark.long
def test_an_experiment_is_noted_with_its_gains_unless_it_is_refused(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("simplify", "loops.py:two_stages", "--budget", "2", cwd=project)
    (run,) = noted(project).runs
    assert run.file is not None
    saved = load(project / run.file)
    verdict, _ = kind_of(saved).summarize(saved)
    gains = {name for name in run.metrics if name.startswith(GAIN)}
    assert (done.code == 0) == (verdict.refused is None)
    if verdict.refused is None:
        assert gains == {f"{GAIN}load", f"{GAIN}train"}
        for row in verdict.rows:
            assert run.metrics[f"{GAIN}{row.name}"].value == row.gain.value
    else:
        assert gains == set()


@pytest.mark.long
def test_every_level_of_a_stage_is_noted(hotloop: Callable, project: Path) -> None:
    words = ("simplify", "loops.py:two_stages", "--deepen", "load", "--budget", "2")
    done = hotloop(*words, cwd=project)
    runs = noted(project).runs
    assert len(runs) == done.err.count("run saved: ")
    assert all(run.target.startswith("loops.py:two_stages ") for run in runs)


def test_drawing_runs_again_notes_nothing(hotloop: Callable, project: Path) -> None:
    hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "a.run", cwd=project)
    before = journal_of(project).path.read_bytes()
    assert hotloop("report", "a.run", "a.run", cwd=project).code == 0
    assert journal_of(project).path.read_bytes() == before


def test_a_run_that_could_not_be_saved_is_noted(hotloop: Callable, project: Path) -> None:
    done = hotloop("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", ".", cwd=project)
    assert done.code == 1
    (run,) = noted(project).runs
    assert run.file is None
    assert RATE in run.metrics


def check_unnoted(done: Any, folder: Path, said: str) -> None:
    """The report and the run are there, and the journal's trouble is the only message."""
    assert done.code == 1
    assert "samples/s" in done.out
    assert "run saved" in done.err
    assert (folder / "kept.run").exists()
    (message,) = done.messages
    assert said in message
    assert "Traceback" not in done.err


def test_a_journal_that_is_none_costs_no_run(hotloop: Callable, project: Path) -> None:
    (project / ".hotloop").mkdir()
    (project / ".hotloop" / "journal.db").write_text("my own notes\n")
    words = ("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "kept.run")
    check_unnoted(hotloop(*words, cwd=project), project, "is no journal of hotloop")
    assert (project / ".hotloop" / "journal.db").read_text() == "my own notes\n"


@pytest.mark.long
def test_a_full_disk_below_the_journal_costs_no_run(hotloop: Callable, project: Path) -> None:
    full = on_disk(size_kb=8, between="head -c 8192 /dev/zero > disk/full; ln -s disk .hotloop")
    words = ("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "kept.run")
    done = hotloop(*words, cwd=project, before=full)
    check_unnoted(done, project, "could not be opened or written")


def test_a_failed_run_says_its_error_and_that_it_is_not_noted(
    hotloop: Callable, project: Path
) -> None:
    (project / ".hotloop").touch()
    words = ("benchmark", "broken.py:fails_midway", "--seconds", "1", "--iterations", 10**6)
    done = hotloop(*words, "--save", "kept.run", cwd=project)
    assert done.code == 1
    assert "ValueError: shard 7 is empty" in done.err
    assert "could not be opened or written" in done.err
    assert (project / "kept.run").exists()


@pytest.mark.long
def test_two_saved_benchmarks_are_an_unpaired_glance(hotloop: Callable, project: Path) -> None:
    words = ("benchmark", "loops.py:two_stages", *BRIEFLY, "--save", "a.run")
    assert hotloop(*words, cwd=project).code == 0
    done = hotloop("report", "a.run", "a.run", cwd=project)
    assert "An unpaired glance" in done.out
    assert "`hotloop compare`" in done.out
    assert hotloop("report", "a.run", "a.run", "--html", "p.html", cwd=project).code == 0
    assert "An unpaired glance" in (project / "p.html").read_text()
