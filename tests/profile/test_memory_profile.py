"""What a profile of memory says of planted leaks, storms of small objects, and turnover."""

import gc
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import hotloop
from hotloop.benchmark.meters import Meters
from hotloop.profile import gpu_memory
from hotloop.profile.gpu_memory import lines_of, profile_gpu
from hotloop.profile.heap import Heap
from hotloop.profile.holders import Holders
from hotloop.profile.memory import MemoryProfile
from hotloop.profile.places import Site, site_of
from support import profiled_loops as planted


@pytest.fixture(scope="module", autouse=True)
def _everything_is_seen():
    """Who holds what is not known of objects that the garbage collector passes over."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(scope="module")
def leaking() -> MemoryProfile:
    planted.kept.clear()
    result = hotloop.run_profile(planted.leaking_loop(), memory=True, seconds=3.0)
    planted.kept.clear()
    found: MemoryProfile = result.profiles["memory"]
    return found


@pytest.mark.long
def test_a_leak_is_named_with_its_stage_line_size_and_holder(leaking: MemoryProfile) -> None:
    assert leaking.growth_bytes is not None
    assert leaking.growth_bytes.value == pytest.approx(planted.MEBIBYTE, rel=0.1)
    assert leaking.growth_bytes.low > 0
    [line] = leaking.growing
    assert (line.stage, line.function) == ("leak", "leak")
    assert (Path(line.file).name, line.line) == ("profiled_loops.py", planted.line_of("the leak"))
    assert line.growth_bytes.value == pytest.approx(planted.MEBIBYTE, rel=0.1)
    holder = next(each for each in leaking.holders if each.name.endswith("profiled_loops.kept"))
    assert holder.kind == "list"
    assert holder.items_per_iteration == pytest.approx(1.0, rel=0.1)


def test_a_storm_of_small_objects_is_counted(leaking: MemoryProfile) -> None:
    line = next(
        each
        for each in leaking.allocating
        if each.stage == "storm" and each.line == planted.line_of("the storm")
    )
    size = sys.getsizeof(bytearray(planted.OBJECT_BYTES))  # the object and its contents
    assert line.bytes_per_iteration == pytest.approx(planted.OBJECTS * size, rel=0.1)
    assert line.allocations_per_iteration == pytest.approx(2 * planted.OBJECTS, rel=0.1)


def test_what_is_replaced_is_held_and_does_not_grow(leaking: MemoryProfile) -> None:
    stages = {each.stage: each for each in leaking.stages}
    # The old one is there until the new one has its name.
    assert 4 <= stages["turnover"].at_peak_bytes / planted.MEBIBYTE <= 8.1
    assert stages["turnover"].bytes_per_iteration == pytest.approx(4 * planted.MEBIBYTE, rel=0.1)
    assert leaking.peak_bytes >= stages["leak"].at_peak_bytes > 0


@pytest.mark.long
def test_a_steady_loop_does_not_grow() -> None:
    result = hotloop.run_profile(planted.steady_loop(), memory=True, seconds=2.0)
    found = result.profiles["memory"]
    assert found.growth_bytes is not None
    # What hotloop itself notes of each iteration, and an arena that Python maps meanwhile: 1 MiB.
    assert abs(found.growth_bytes.value) < 1024 + found.growth_bytes.half_width
    assert found.growing == []
    assert "no leak is seen" in repr(result)


@pytest.mark.long
def test_a_growing_queue_is_named_with_its_stage_line_size_and_holder() -> None:
    result = hotloop.run_profile(planted.backlog_loop(), memory=True, seconds=2.0)
    planted.backlog.queue.clear()
    found = result.profiles["memory"]
    [line] = found.growing
    assert (line.stage, line.line) == ("produce", planted.line_of("the backlog"))
    # One of the three takes the place of what was put in before the profile began.
    assert line.growth_bytes.value == pytest.approx(2 * planted.ITEM_BYTES, rel=0.1)
    # An arena that Python maps meanwhile counts too.
    reach = found.growth_bytes.half_width + 0.1 * 2 * planted.ITEM_BYTES
    assert found.growth_bytes.value == pytest.approx(2 * planted.ITEM_BYTES, abs=reach)
    assert found.replaced_bytes == pytest.approx(planted.ITEM_BYTES, rel=0.2)
    holder = next(each for each in found.holders if each.kind == "deque")
    assert holder.name == f"{planted.__name__}.backlog.queue"
    assert holder.items_per_iteration == pytest.approx(2, rel=0.1)


@pytest.mark.long
def test_a_full_ring_is_no_leak() -> None:
    result = hotloop.run_profile(planted.ring_loop(), memory=True, seconds=2.0)
    planted.ring.clear()
    found = result.profiles["memory"]
    assert found.growing == []
    assert found.replaced_bytes == pytest.approx(planted.ITEM_BYTES, rel=0.2)
    assert "no leak is seen" in repr(result)
    assert "in place of what was there before" in " ".join(repr(result).split())


def test_another_malloc_than_that_of_the_library_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heap = Heap.usable()
    assert heap is not None
    before = heap.in_use_bytes()
    held = bytearray(1 << 20)
    assert heap.in_use_bytes() - before == pytest.approx(len(held), rel=0.01)
    monkeypatch.setattr(Heap, "in_use_bytes", lambda self: 0)
    assert Heap.usable() is None


@pytest.mark.long
def test_too_few_iterations_say_so() -> None:
    found = hotloop.run_profile(planted.steady_loop(), memory=True, seconds=0.001)
    assert found.profiles["memory"].growth_bytes is None
    assert "give a larger --seconds" in repr(found)


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = hotloop.run_profile(planted.steady_loop(), memory=True, seconds=0.2)
    assert "pip install 'hotloop[profile]'" in result.found.missing["memory"]


# --- places and holders --------------------------------------------------------------------------


def test_a_place_is_the_users_line_in_the_innermost_stage() -> None:
    stage = ("stage: act", "named_call.py", 3)
    stack = [("inner", "/x/site-packages/lib/a.py", 5), ("mine", "/home/me/train.py", 7), stage]
    assert site_of([*stack, ("above", "/home/me/train.py", 9)]) == Site(
        "act", "mine", "/home/me/train.py", 7
    )
    assert site_of([stack[0], stage]) == Site("act", *stack[0])
    assert site_of([("mine", "/home/me/train.py", 7)]) == Site(
        "the rest", "mine", "/home/me/train.py", 7
    )
    assert site_of([]) is None
    # Every stack of the main thread begins in the file behind the command: nobody's own code.
    command = ("<module>", str(Path(sysconfig.get_path("scripts")) / "hotloop"), 8)
    assert site_of([stack[0], command]) == Site("the rest", *stack[0])


class Owner:
    def __init__(self) -> None:
        self.held: list[int] = []


SEEN: deque[int] = deque()


class Shared:
    """Its class holds bytes by number: the collector follows no such dict."""

    by_number: dict[int, bytes] = {}  # noqa: RUF012  # shared on purpose


def adder() -> Callable[[int], None]:
    hidden: list[int] = []
    return lambda number: hidden.append(number)


@pytest.mark.long
def test_what_grows_is_found_by_the_name_of_its_holder() -> None:
    owner, still, add, meters = Owner(), {"a": 1}, adder(), Meters()
    with (holders := Holders()):
        for number in range(10):
            owner.held.append(number)
            meters.read()  # of hotloop's own, which notes what it measures
            SEEN.append(number)
            Shared.by_number[number] = bytes(3)
            add(number)
        still["b"] = 2
    found = {each.name: each for each in holders.growing(10)}
    assert found["Owner.held"].items_per_iteration == 1.0
    assert found[f"{__name__}.SEEN"].kind == "deque"
    assert found[f"{__name__}.Shared.by_number"].kind == "dict"
    assert found["hidden in adder.<locals>.<lambda>"].items == 10
    assert len(found) == 4


@pytest.mark.long
def test_what_has_grown_only_before_or_after_the_middle_is_not_named() -> None:
    """So looks a container at the address of one that was freed."""
    early, late, always = Owner(), Owner(), Owner()
    with (holders := Holders()):
        for number in range(10):
            if number == 5:
                holders.look()
            always.held.append(number)
            (early if number < 5 else late).held.append(number)
    assert [each.items for each in holders.growing(10)] == [10]


class FakeMemory:
    """What `torch.cuda.memory` offers, on a card that is not there."""

    def __init__(self) -> None:
        self.recording: list[dict[str, object]] = []

    def _record_memory_history(self, **options: object) -> None:
        self.recording.append(options)

    def _snapshot(self) -> dict[str, object]:
        frames = [
            {"name": "forward", "filename": "/home/me/net.py", "line": 3},
            {"name": "stage: update", "filename": "named_call.py", "line": 1},
        ]
        block = {"state": "active_allocated", "size": 2048, "frames": frames}
        return {"segments": [{"blocks": [block]}]}


def card(memory: FakeMemory) -> SimpleNamespace:
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        reset_peak_memory_stats=lambda: None,
        max_memory_allocated=lambda: 4096,
        max_memory_reserved=lambda: 8192,
        memory=memory,
    )
    return SimpleNamespace(cuda=cuda)


def test_a_card_is_recorded_for_a_few_iterations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FakeMemory()
    monkeypatch.setattr(gpu_memory, "torch_if_loaded", lambda: card(memory))
    measurement = profile_gpu()
    request = next(measurement)
    assert request.iterations == gpu_memory.ITERATIONS
    assert memory.recording == []  # until the block begins
    request.at_start()
    with pytest.raises(StopIteration) as ended:
        measurement.send(None)
    found = ended.value.value
    assert (found.peak_bytes, found.reserved_bytes) == (4096, 8192)
    [line] = found.lines
    assert (line.stage, line.function, line.bytes) == ("update", "forward", 2048)
    assert memory.recording[1:] == [{"enabled": None}]


def test_recording_ends_where_the_loop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = FakeMemory()
    monkeypatch.setattr(gpu_memory, "torch_if_loaded", lambda: card(memory))
    measurement = profile_gpu()
    next(measurement)
    with pytest.raises(ValueError, match="the loop's"):
        measurement.throw(ValueError("the loop's"))
    assert memory.recording == [{"enabled": None}]


def test_a_loop_that_uses_no_card_has_no_profile_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = card(FakeMemory())
    idle.cuda.is_initialized = lambda: False
    for torch in (None, idle):
        monkeypatch.setattr(gpu_memory, "torch_if_loaded", lambda torch=torch: torch)
        with pytest.raises(StopIteration) as ended:
            next(profile_gpu())
        assert ended.value.value is None


def test_a_snapshot_of_a_card_is_read_by_stage_and_line() -> None:
    frames = [
        {"name": "forward", "filename": "/home/me/net.py", "line": 3},
        {"name": "stage: update", "filename": "named_call.py", "line": 1},
    ]
    blocks = [
        {"state": "active_allocated", "size": 1024, "frames": frames},
        {"state": "active_allocated", "size": 512, "frames": frames},
        {"state": "inactive", "size": 4096, "frames": frames},
    ]
    [line] = lines_of({"segments": [{"blocks": blocks}]})
    assert (line.stage, line.function, line.line, line.bytes) == ("update", "forward", 3, 1536)
