"""Run files: what was saved comes back, and every bad file gives one clear sentence."""

import errno
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hotloop.errors import RunError
from hotloop.loop.run import FORMAT, Run, load


def small_run() -> Run:
    return Run(
        verb="benchmark",
        target="loops.py:make",
        settings={"seconds": 1.5, "iterations": None},
        facts={
            "unit": "samples",
            "rate": 1 / 3,
            "nothing": float("nan"),
            "limit": float("inf"),
            "name": "Zürich → 東京",
            "stages": [{"name": "load", "share": 0.25}],
        },
        arrays={
            "duration_ns": np.arange(20, dtype=np.int64),
            "units": np.array([1.5, np.nan, np.inf]),
            "table": np.zeros((0, 4), np.float32),
            "passed": np.array([True, False]),
        },
        host={"cpu": "one", "date": "2026-01-01"},
        complete=False,
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return small_run().save(tmp_path / "a.run")


def test_what_was_saved_comes_back(saved: Path) -> None:
    run, again = small_run(), load(saved)
    assert (again.verb, again.target, again.complete) == (run.verb, run.target, run.complete)
    assert (again.settings, again.host) == (run.settings, run.host)
    assert str(again.facts) == str(run.facts)  # NaN is not equal to itself
    assert list(again.arrays) == list(run.arrays)
    for name, array in run.arrays.items():
        assert again.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(again.arrays[name], array)


def test_saving_again_gives_the_same_content(saved: Path) -> None:
    again = load(load(saved).save(saved.with_name("b.run")))
    assert str(again.facts) == str(load(saved).facts)


def test_numbers_of_numpy_and_paths_are_saved_as_plain_ones(tmp_path: Path) -> None:
    run = small_run()
    run.facts = {
        "count": np.int64(3),
        "share": np.float32(0.5),
        "row": np.arange(3),
        "where": Path("a/b"),
    }
    again = load(run.save(tmp_path / "a.run"))
    assert again.facts == {"count": 3, "share": 0.5, "row": [0, 1, 2], "where": "a/b"}


def test_a_fact_that_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run = small_run()
    run.facts["body"] = object()
    with pytest.raises(TypeError, match="object cannot be saved"):
        run.save(tmp_path / "a.run")
    assert list(tmp_path.iterdir()) == []


def test_by_default_runs_go_under_one_folder_and_never_over_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = small_run()
    paths = [run.save() for _ in range(3)]
    assert len(set(paths)) == 3
    assert {path.parent for path in paths} == {Path(".hotloop")}
    assert sorted(Path(".hotloop").iterdir()) == sorted(paths)
    assert all("-benchmark-loops.py-make" in path.name for path in paths)


@pytest.mark.parametrize("target", ["../up.py:f", "a/b c.py", "pkg.mod:f", "-x", "x" * 400])
def test_any_target_makes_a_file_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = small_run()
    run.target = target
    path = run.save()
    assert path.parent == Path(".hotloop")
    assert load(path).target == target


def test_an_earlier_run_is_replaced_whole(saved: Path) -> None:
    run = small_run()
    run.complete = True
    run.save(saved)
    assert load(saved).complete
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_run_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*{"fsync": (os, "fsync", full), "replace": (Path, "replace", full)}[step])
    with pytest.raises(RunError, match=r"could not be saved as .*a\.run: No space left") as error:
        small_run().save(saved)
    monkeypatch.undo()
    assert "--save" in str(error.value)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_an_interrupt_while_saving_leaves_the_earlier_run_and_nothing_else(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small_run().save(saved)
    monkeypatch.undo()
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


WRITE_UNDER_A_LIMIT = """
import resource, sys
from pathlib import Path
import numpy as np
from hotloop.errors import RunError
from hotloop.loop.run import Run
run = Run("benchmark", "t", {}, arrays={"noise": np.random.default_rng(0).random(20_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
try:
    run.save(Path(sys.argv[1]))
except RunError as error:
    print(error)
"""


def test_a_write_that_really_fails_halfway_is_cleaned_up(saved: Path) -> None:
    assert hasattr(resource, "RLIMIT_FSIZE")
    before = saved.read_bytes()
    done = subprocess.run(
        [sys.executable, "-B", "-c", WRITE_UNDER_A_LIMIT, str(saved)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert "could not be saved" in done.stdout
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("place", [".", "folder", "file/below.run", "/"])
def test_a_path_that_is_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    with pytest.raises(RunError, match="could not be saved"):
        small_run().save(Path(place))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    assert load(small_run().save(tmp_path / "a" / "b" / "c.run")).verb == "benchmark"


# --- bad files ------------------------------------------------------------------------------------


def sentence_for(path: Path) -> str:
    with pytest.raises(RunError) as error:
        load(path)
    sentence = str(error.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no such run" in sentence_for(tmp_path / "gone.run")


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder" in sentence_for(tmp_path)


def test_a_path_through_a_file_is_missing(saved: Path) -> None:
    assert "no such run" in sentence_for(saved / "below.run")


@pytest.mark.parametrize(
    "content", [b"", b"plain text\n", b"\x89PNG\r\n\x1a\n" + bytes(100), b'{"hotloop_run": 1}']
)
def test_a_file_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    assert "is no hotloop run" in sentence_for(path)


@pytest.mark.parametrize(
    "members",
    [{"readme.txt": "hello"}, {"run.json": "{}"}, {"run.json": "[1]"}, {"run.json": '"run"'}],
)
def test_an_archive_that_is_no_run(tmp_path: Path, members: dict[str, str]) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert "not a hotloop run" in sentence_for(path)


def test_a_newer_version_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "new.run"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run.json", json.dumps({"hotloop_run": FORMAT + 1, "other": "shape"}))
    sentence = sentence_for(path)
    assert f"format {FORMAT + 1}" in sentence
    assert "install the newer one" in sentence


@pytest.mark.parametrize("version", ['"1"', "null", "[1]", "{}"])
def test_a_version_that_is_no_number(tmp_path: Path, version: str) -> None:
    path = tmp_path / "odd.run"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run.json", f'{{"hotloop_run": {version}}}')
    sentence_for(path)


@pytest.mark.parametrize("missing", ["verb", "target", "settings", "facts", "host", "complete"])
def test_a_header_without_one_of_its_parts(saved: Path, missing: str) -> None:
    path = saved.with_name("part.run")
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(path, "w") as after:
        header = json.loads(before.read("run.json"))
        del header[missing]
        after.writestr("run.json", json.dumps(header))
    assert missing in sentence_for(path)


def test_an_array_that_would_run_code_is_refused(saved: Path) -> None:
    import io

    path = saved.with_name("objects.run")
    buffer = io.BytesIO()
    np.save(buffer, np.array([object()]), allow_pickle=True)
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(path, "w") as after:
        after.writestr("run.json", before.read("run.json"))
        after.writestr("evil.npy", buffer.getvalue())
    sentence_for(path)


def test_a_file_cut_short_anywhere_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    cut = saved.with_name("cut.run")
    for length in range(2, len(whole), 7):
        cut.write_bytes(whole[:length])
        assert "was cut short or damaged" in sentence_for(cut)


def test_a_damaged_byte_anywhere_is_refused_or_harmless(saved: Path) -> None:
    whole = saved.read_bytes()
    damaged = saved.with_name("damaged.run")
    other_errors: dict[str, int] = {}
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 0xFF
        damaged.write_bytes(content)
        try:
            load(damaged)
        except RunError:
            pass
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
            other_errors[kind] = other_errors.get(kind, 0) + 1
    assert other_errors == {}
