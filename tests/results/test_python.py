"""Measuring from Python: what is returned, how it is shown, and which errors are raised."""

import asyncio
import html
import inspect
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import hotloop
from hotloop.errors import LoopError, RunError, SettingError, TargetError
from hotloop.loop.control import process_control
from hotloop.loop.run import Run, load
from hotloop.repeat.entries import RATE
from hotloop.repeat.journal import Journal
from hotloop.report.benchmark import print_benchmark
from hotloop.report.html import render
from hotloop.report.simplify import print_simplify
from hotloop.results.result import WIDTH, Result
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.verdict import Verdict
from support.growing_budget import BUDGETS_S, simplify_until

TARGETS = Path(__file__).parents[1] / "cli/targets"
BRIEFLY = {"seconds": 0.5}


def spin(turns: int) -> int:
    return sum(range(turns))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, whose stages do not obey this one."""
    own = {name: value for name, value in os.environ.items() if name != "HOTLOOP_CONTROL"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=100,
        env=own,
    )


def two_stages(name: str = "planted") -> hotloop.Loop:
    load_stage = hotloop.stage(f"{name} load", spin, effect="pure")
    train = hotloop.stage(f"{name} train", spin, effect="pure")

    def body() -> int:
        load_stage(20_000)
        train(10_000)
        return 10

    return hotloop.Loop(body=body, unit="samples", name=name)


def benchmark_well(loop: hotloop.Loop) -> hotloop.BenchmarkResult:
    """Benchmark until the share of its first stage is known: a busy machine stalls for seconds."""
    for seconds in (2.0, *BUDGETS_S):
        result = hotloop.run_benchmark(loop, seconds=seconds)
        if result.summary.stages[0].share.half_width < 0.3:
            break
    return result


@pytest.fixture(scope="module")
def benchmarked() -> hotloop.BenchmarkResult:
    return hotloop.run_benchmark(two_stages(), **BRIEFLY, price_per_hour=2.0)


@pytest.fixture(scope="module")
def simplified() -> hotloop.SimplifyResult:
    return simplify_until(lambda found: len(found.record.ns) > 0, two_stages(), worth=0.05)


def printed(result: Result) -> str:
    console = Console(file=io.StringIO(), width=WIDTH)
    result.print_to(console)
    return console.file.getvalue()


def test_a_benchmark_has_its_figures(benchmarked: hotloop.BenchmarkResult) -> None:
    summary = benchmarked.summary
    assert summary.unit == "samples"
    assert summary.target == "planted"
    assert summary.price_per_hour == 2.0
    assert [stage.name for stage in summary.stages] == ["planted load", "planted train"]
    assert benchmarked.run.settings["seconds"] == 0.5
    assert benchmarked.run.complete


@pytest.mark.long
def test_an_experiment_has_its_verdict_and_its_record(simplified: hotloop.SimplifyResult) -> None:
    assert isinstance(simplified.verdict, Verdict)
    assert isinstance(simplified.record, Record)
    assert {row.name for row in simplified.verdict.rows} == {"planted load", "planted train"}
    assert simplified.run.settings["worth"] == 0.05
    assert len(simplified.record.ns) > 0


@pytest.mark.parametrize("name", ["benchmarked", "simplified"])
def test_a_result_is_the_report_as_text(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    console = Console(file=io.StringIO(), width=WIDTH)
    if name == "benchmarked":
        print_benchmark(console, result.summary, result.run)
    else:
        print_simplify(console, result.verdict, result.run)
    assert repr(result) == console.file.getvalue().rstrip("\n")
    rich = Console(file=io.StringIO(), width=WIDTH)
    rich.print(result)
    assert rich.file.getvalue().rstrip("\n") == repr(result)


def test_a_result_is_in_colour_where_the_terminal_is(benchmarked: Result) -> None:
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="256")
    console.print(benchmarked)
    assert "\x1b[1m" in console.file.getvalue()


@pytest.mark.parametrize("name", ["benchmarked", "simplified"])
def test_a_notebook_shows_the_page_of_the_report(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    shown = result._repr_html_()
    (page,) = re.findall(r'srcdoc="(.*?)"', shown, flags=re.S)
    assert html.unescape(page) == render([result.run])
    assert "src=" not in re.sub(r'srcdoc=".*?"', "", shown, flags=re.S)


@pytest.mark.parametrize("name", ["benchmarked", "simplified"])
def test_a_result_as_a_dict_is_json(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    content = json.loads(json.dumps(result.to_dict()))
    assert content["target"] == "planted"


def test_a_result_is_saved_where_asked(
    benchmarked: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = benchmarked.save(str(tmp_path / "kept.run"))
    assert path == tmp_path / "kept.run"
    assert repr(hotloop.BenchmarkResult(load(path))) == repr(benchmarked)
    monkeypatch.chdir(tmp_path)
    assert not Path(".hotloop").exists()
    saved = benchmarked.save()
    assert saved.parent == Path(".hotloop")
    (noted,) = Journal().contents().runs
    assert noted.file == str(saved)
    assert noted.metrics[RATE].value == benchmarked.summary.units_per_s.value


@pytest.mark.long
def test_a_target_is_named_as_on_the_command_line() -> None:
    result = hotloop.run_benchmark(f"{TARGETS / 'loops.py'}:two_stages", **BRIEFLY)
    assert result.summary.target.endswith("loops.py:two_stages")
    assert result.summary.units_per_s.value > 0


@pytest.mark.long
def test_a_script_gets_its_arguments_and_overwrites_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arguments.json").write_text("the user's own")
    script = tmp_path / "plain.py"
    script.write_text((TARGETS / "plain.py").read_text() + "\nprint(sys.argv[1:])\n")
    result = hotloop.run_benchmark(str(script), arguments=["--fast"])
    assert "['--fast']" in capsys.readouterr().out
    assert (tmp_path / "arguments.json").read_text() == "the user's own"
    assert "whole call" in repr(result)


def test_a_refused_verdict_is_a_result() -> None:
    result = hotloop.run_simplify(two_stages(), budget=0.001)
    assert result.verdict.refused is not None
    assert result.verdict.fix is None
    assert "no verdict" in repr(result)


# --- calls in a row, and where they come from -------------------------------------------------


@pytest.mark.long
def test_two_in_a_row_on_the_same_stages_say_the_same() -> None:
    closed: list[bool] = []
    loop = two_stages("twice")
    loop = hotloop.Loop(body=loop.body, unit="samples", close=lambda: closed.append(True))
    first, second = (hotloop.run_benchmark(loop, seconds=0.7).summary for _ in range(2))
    verdict = hotloop.run_simplify(loop, budget=1.5).verdict
    assert [row.name for row in first.stages] == [row.name for row in second.stages]
    for one, other in zip(first.stages, second.stages, strict=True):
        assert one.calls_per_iteration == other.calls_per_iteration == 1
        assert 0 < one.share.value < 1
        assert 0 < other.share.value < 1
    assert {row.calls_per_iteration for row in verdict.rows} == {1.0}
    # Its owner may go on with it.
    assert not closed


def test_what_a_target_string_made_is_closed(tmp_path: Path) -> None:
    source = (
        "from pathlib import Path\nimport hotloop\ndef make():\n"
        f"    return hotloop.Loop(body=lambda: 1, close=Path({str(tmp_path / 'closed')!r}).touch)\n"
    )
    (tmp_path / "closes.py").write_text(source)
    hotloop.run_benchmark(f"{tmp_path / 'closes.py'}:make", seconds=0.2)
    assert (tmp_path / "closed").exists()


@pytest.mark.long
def test_from_a_thread_that_is_not_the_main_one() -> None:
    found: list[object] = []

    def measure() -> None:
        found.append(benchmark_well(two_stages("thread")).summary)
        found.append(hotloop.run_simplify(two_stages("thread"), budget=1.0).verdict)

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join(200)
    summary, verdict = found
    assert summary.stages[0].share.value > 0.3
    assert len(verdict.rows) == 2


@pytest.mark.long
def test_from_a_cell_of_a_notebook_whose_event_loop_runs() -> None:
    async def cell() -> list[object]:
        result = hotloop.run_simplify(two_stages("cell"), budget=1.0)
        return [result, benchmark_well(two_stages("cell"))]

    simplified, benchmarked = asyncio.run(cell())
    assert not simplified.record.concurrent
    assert benchmarked.summary.stages[0].share.value > 0.3
    assert "<iframe" in benchmarked._repr_html_()


@pytest.mark.long
def test_two_measurements_at_once_are_refused() -> None:
    def body() -> int:
        with pytest.raises(LoopError, match="measuring already"):
            hotloop.run_benchmark(two_stages(), **BRIEFLY)
        return 1

    assert hotloop.run_benchmark(hotloop.Loop(body=body), iterations=3).summary.iterations == 3


# --- what reaches the caller ------------------------------------------------------------------


def test_an_error_of_the_loop_is_raised_as_it_is() -> None:
    error = ValueError("planted")

    def body() -> int:
        raise error

    with pytest.raises(ValueError, match="planted") as caught:
        hotloop.run_benchmark(hotloop.Loop(body=body), **BRIEFLY)
    assert caught.value is error
    assert not hasattr(error, "result")  # nothing had been measured


@pytest.mark.long
@pytest.mark.parametrize("measure", [hotloop.run_benchmark, hotloop.run_simplify])
def test_an_interrupt_reaches_the_caller_with_what_had_been_measured(
    measure: Callable[..., Any],
) -> None:
    act = hotloop.stage("interrupted", spin, effect="pure")
    other = hotloop.stage("not interrupted", spin, effect="pure")

    def interrupted_halfway(budget_s: float) -> Any:
        """The result that comes with the interrupt; None if nothing had been measured."""
        limit_s = time.monotonic() + budget_s / 2

        def body() -> int:
            if time.monotonic() > limit_s:
                raise KeyboardInterrupt
            act(20_000)
            other(20_000)
            return 1

        settings = {"seconds": budget_s, "iterations": 10**9}
        if measure is hotloop.run_simplify:
            settings = {"budget": budget_s}
        with pytest.raises(KeyboardInterrupt) as caught:
            measure(hotloop.Loop(body=body, name="cut"), **settings)
        return getattr(caught.value, "result", None)

    partials = map(interrupted_halfway, BUDGETS_S)
    partial = next(each for each in partials if each is not None)
    assert not partial.run.complete
    assert partial.has_samples
    assert "interrupted" in repr(partial)
    # Nothing is left behind: stages do what they did, and measuring goes on.
    assert act(10) == 45
    assert hotloop.run_benchmark(two_stages(), **BRIEFLY).run.complete


@pytest.mark.long
def test_state_is_put_back_after_an_interrupt() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def step(self) -> int:
            spin(10_000)
            self.count += 1
            return 1

    counter = Counter()
    step = hotloop.stage("counted", counter.step, effect="stateful")
    learn = hotloop.stage("counted learn", spin, effect="pure")
    seen: list[int] = []
    control = process_control()
    first = control.epoch

    def body() -> int:
        seen.append(counter.count)
        if control.epoch - first > 110:  # so many blocks: far into the rounds
            raise KeyboardInterrupt
        step()
        learn(5_000)
        return 1

    with pytest.raises(KeyboardInterrupt) as caught:
        hotloop.run_simplify(hotloop.Loop(body=body, state=[counter]), budget=30)
    kept = caught.value.result.record.iterations_kept
    assert counter.count < len(seen)
    assert abs(counter.count - kept) <= 8


@pytest.mark.parametrize(
    ("measure", "wrong", "near"),
    [
        (hotloop.run_benchmark, "secons", "seconds"),
        (hotloop.run_simplify, "budjet", "budget"),
    ],
)
def test_an_unknown_setting_suggests_the_nearest(measure: object, wrong: str, near: str) -> None:
    with pytest.raises(SettingError, match=f"{wrong!r}; did you mean {near!r}"):
        measure(two_stages(), **{wrong: 1})


def test_a_setting_out_of_range_is_refused() -> None:
    with pytest.raises(SettingError, match="budget"):
        hotloop.run_simplify(two_stages(), budget=-1)


def test_help_shows_every_setting_with_its_default() -> None:
    shown = inspect.signature(hotloop.run_simplify).parameters
    for field in fields(SimplifySettings):
        assert shown[field.name].default == field.default
    assert inspect.signature(hotloop.run_benchmark).parameters["seconds"].default == 10.0


@pytest.mark.parametrize("target", [two_stages, 3, "nowhere.py", "x"])
def test_what_is_no_target_is_refused(target: object) -> None:
    with pytest.raises(TargetError):
        hotloop.run_benchmark(target, **BRIEFLY)


# --- names ------------------------------------------------------------------------------------


def test_no_public_name_is_a_submodules() -> None:
    modules = {module.name for module in pkgutil.iter_modules(hotloop.__path__)}
    # A watch is a context and a package of callbacks: the package is what is called.
    assert modules & set(hotloop.__all__) == {"watch"}
    assert callable(hotloop.watch)
    assert set(hotloop.__all__) <= set(dir(hotloop))


@pytest.mark.slow
def test_the_functions_stay_functions_when_every_submodule_is_imported() -> None:
    code = """
import importlib, pkgutil, hotloop
for module in pkgutil.walk_packages(hotloop.__path__, "hotloop."):
    try:
        importlib.import_module(module.name)
    except ImportError as missing:
        assert not missing.name.startswith("hotloop"), missing
loop = hotloop.Loop(body=hotloop.stage("only", lambda: sum(range(2000)) and 1, effect="pure"))
assert hotloop.run_benchmark(loop, seconds=0.3).summary.iterations > 1
assert hotloop.run_simplify(loop, budget=0.5).verdict is not None
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_a_run_of_another_verb_is_no_benchmark() -> None:
    with pytest.raises(RunError, match="no benchmark"):
        _ = hotloop.BenchmarkResult(Run("train", "ppo:CartPole-v1", {})).summary
