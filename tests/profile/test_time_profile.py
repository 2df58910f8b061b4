"""Where a profile of time says that it goes, beside what the planted code has counted itself."""

import json
from pathlib import Path

import pytest

import hotloop
from hotloop.errors import LoopError, SettingError, StageError
from hotloop.profile import samplers, time_profile
from hotloop.profile.flame import tree
from hotloop.profile.samplers import SAMPLERS, CProfile, read_raw
from hotloop.profile.stacks import REST, Frame, Lane, Stacks
from support import profiled_loops

HOT = profiled_loops.line_of("the hot line")
LOOP = Lane("MainThread", is_loop=True)


@pytest.mark.long
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_hot_function_is_named_with_its_stage_and_share(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_profile, "SAMPLERS", {name: SAMPLERS[name]})
    for spent in profiled_loops.spent_s.values():
        spent.clear()
    result = hotloop.run_profile(profiled_loops.hot_loop(), time=True, seconds=4.0, rate_per_s=400)
    found = result.profiles["time"]
    assert found.overhead.tool == name
    assert found.overhead.not_used == []
    shares = {each.stage: each.share for each in found.stages if each.lane == "MainThread"}
    assert set(shares) >= {"work", "wait"}
    assert sum(shares.values()) == pytest.approx(1.0)
    hot = next(each for each in found.functions if each.function.endswith("hot"))
    assert hot.stage == "work"
    assert Path(hot.file).name == "profiled_loops.py"
    if name != "cProfile":  # which counts calls, and knows no lines
        assert hot.line in (HOT - 1, HOT, HOT + 1)
        truth, error = share_of_hot(profiled_loops.spent_s[name != "py-spy"])
        samples = next(each.samples for each in found.stages if each.stage == "work")
        count = samples if name == "py-spy" else samples // 2_500  # in µs, one sample each 2.5 ms
        error += (truth * (1 - truth) / max(count, 1)) ** 0.5
        # Within a tenth of what the planted code has counted, and what so many turns and samples
        # allow: on a busy machine the turns differ, and there are few samples.
        assert hot.own == pytest.approx(truth, abs=0.1 * truth + 3 * error)
    assert hot.own > 0.1
    assert found.overhead.slowdown.value > 0
    assert found.flame.count > 0


def share_of_hot(turns: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the share of `hot` in all turns, and how far that of other turns may be from it.

    The second is the standard error of a ratio of sums over independent turns: not all turns are
    sampled, and on a busy machine another process takes its time out of one part or the other.
    """
    whole_s = sum(work_s for _, work_s in turns)
    share = sum(hot_s for hot_s, _ in turns) / whole_s
    residuals = sum((hot_s - share * work_s) ** 2 for hot_s, work_s in turns)
    return share, (2 * residuals) ** 0.5 / whole_s


@pytest.mark.long
def test_a_sampler_that_does_not_work_is_named_and_the_next_one_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forbidden = tmp_path / "py-spy"
    forbidden.write_text(
        "#!/bin/sh\necho 'Permission Denied: Try running again as root' >&2\nexit 1\n"
    )
    forbidden.chmod(0o755)
    monkeypatch.setattr(samplers.sys, "executable", str(tmp_path / "python"))
    result = hotloop.run_profile(profiled_loops.hot_loop(), time=True, seconds=1.0)
    overhead = result.profiles["time"].overhead
    assert overhead.tool == "pyinstrument"
    assert [each.tool for each in overhead.not_used] == ["py-spy"]
    assert "SYS_PTRACE" in overhead.not_used[0].why
    assert "not with py-spy: the system does not permit" in " ".join(repr(result).split())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Error: Permission Denied: Try running again as root\n", "set kernel.yama.ptrace_scope"),
        (
            "Error: No python processes found in process 7 or any of its subprocesses\n\n"
            "Stack backtrace:\n   0: anyhow::error::<impl anyhow::Error>::msg\n",
            "the capability SYS_PTRACE",
        ),
        ("Error: No such option\n\nStack backtrace:\n   0: x\n", "it failed: No such option"),
    ],
)
def test_why_py_spy_does_not_work_is_one_sentence(said: str, why: str) -> None:
    told = samplers._why_py_spy(said)
    assert why in told
    assert "backtrace" not in told


@pytest.mark.long
def test_native_frames_are_refused_by_those_that_see_none(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {name: make for name, make in SAMPLERS.items() if name != "py-spy"}
    monkeypatch.setattr(time_profile, "SAMPLERS", without)
    result = hotloop.run_profile(profiled_loops.hot_loop(), time=True, native=True, seconds=0.5)
    assert result.profiles == {}
    assert "it sees no native frames" in result.found.missing["time"]


@pytest.mark.slow
def test_native_frames_are_seen_by_py_spy() -> None:
    result = hotloop.run_profile(
        profiled_loops.hot_loop(), time=True, native=True, seconds=2.0, rate_per_s=200
    )
    nodes = list(_nodes(result.profiles["time"].flame))
    assert any(node.name == "hot" for node in nodes)
    # A file of C, or a library of which no more is known.
    assert any(".so" in node.file or node.file.endswith(".c") for node in nodes)


def _nodes(node):  # type: ignore[no-untyped-def]
    yield node
    for child in node.children:
        yield from _nodes(child)


@pytest.mark.long
def test_the_stacks_are_written_for_speedscope(tmp_path: Path) -> None:
    result = hotloop.run_profile(profiled_loops.hot_loop(), time=True, seconds=1.0)
    path = tmp_path / "stacks.json"
    assert result.write_speedscope(path)
    written = json.loads(path.read_text())
    frames = written["shared"]["frames"]
    for profile in written["profiles"]:
        assert profile["endValue"] == sum(profile["weights"])
        assert len(profile["weights"]) == len(profile["samples"])
        assert all(0 <= at < len(frames) for sample in profile["samples"] for at in sample)
    assert "stage: work" in {frame["name"] for frame in frames}


def test_nothing_to_profile_is_refused() -> None:
    with pytest.raises(SettingError, match="expected what to profile"):
        hotloop.run_profile(profiled_loops.hot_loop())
    with pytest.raises(SettingError, match="--native: expected --time"):
        hotloop.run_profile(profiled_loops.hot_loop(), memory=True, native=True)
    with pytest.raises(StageError, match="did you mean 'work'"):
        hotloop.run_profile(profiled_loops.hot_loop(), time=True, only="wrok", seconds=0.5)


def test_a_loop_that_raises_gives_its_own_error() -> None:
    def body() -> int:
        raise LoopError("planted")

    with pytest.raises(LoopError, match="planted"):
        hotloop.run_profile(hotloop.Loop(body=body, unit="turns"), time=True)


# --- stacks --------------------------------------------------------------------------------------


def test_what_py_spy_writes_is_read() -> None:
    text = (
        'process 7:"python -c \\"a; b\\"";thread (7): MainThread;'
        "<module> (a.py:1);Net.f (b/c d.py:22) 3\n"
        "thread (0x7f): Thread-1 (x);run (t.py:5);memcpy (libc.so.6) 12\n"
    )
    first, second = read_raw(text)
    assert first == (
        Lane("process 7, MainThread", is_loop=False),
        [Frame("<module>", "a.py", 1), Frame("Net.f", "b/c d.py", 22)],
        3,
    )
    assert second[0] == Lane("Thread-1 (x)", is_loop=False)
    assert second[1][1] == Frame("memcpy", "libc.so.6", 0)


def test_a_stack_belongs_to_its_innermost_stage_and_counts_for_all_around_it() -> None:
    stacks = Stacks()
    outer, inner = Frame("stage: outer", "", 0), Frame("stage: inner", "", 0)
    f, g = Frame("f", "u.py", 1), Frame("g", "u.py", 9)
    stacks.add(LOOP, [outer, f, inner, g], 3)
    stacks.add(LOOP, [outer, f], 1)
    stacks.add(LOOP, [g], 4)
    shares = {each.stage: each.share for each in stacks.stages()}
    assert shares == {"outer": 0.5, "inner": 0.375, REST: 0.5}
    functions = {(each.stage, each.function): each.own for each in stacks.functions()}
    assert functions == {("inner", "g"): 1.0, ("outer", "f"): 1.0, (REST, "g"): 1.0}
    flame = tree(stacks)
    assert flame.count == 8
    assert [(child.name, child.count) for child in flame.children] == [
        ("stage: outer", 4),
        ("g", 4),
    ]


def test_who_called_a_function_says_whose_time_it_was() -> None:
    profile = CProfile(100, native=False)
    hot_stage, cool_stage = (
        hotloop.loop.named_call.named_call("a"),
        hotloop.loop.named_call.named_call("b"),
    )
    profile.start()
    for _ in range(3):  # what another program takes of one of them changes nothing
        hot_stage(profiled_loops.hot, (300_000,), {})
        cool_stage(profiled_loops.hot, (10_000,), {})
    profile.stop()
    shares = {
        each.stage: each.samples for each in profile.stacks().stages() if each.stage in ("a", "b")
    }
    assert shares["a"] > shares["b"] > 0
