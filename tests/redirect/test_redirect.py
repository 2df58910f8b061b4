"""Scripts that try hard to change what their user has: it stays, and they see what they did."""

import csv
import gc
import io
import logging
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hotloop.errors import HotloopError, RedirectError, SettingError
from hotloop.redirect import Redirect
from support.user_trees import plant, snapshot, thrown_away


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return plant(tmp_path / "user")


@pytest.fixture
def away(tmp_path: Path) -> Path:
    return tmp_path / "away"


@pytest.fixture
def run(root: Path, away: Path) -> Iterator[Redirect]:
    """A redirected run in a planted tree, which is the same afterwards."""
    with thrown_away(root, away) as redirect:
        yield redirect


def test_a_checkpoint_is_saved_renamed_pruned_and_loaded(run: Redirect, root: Path) -> None:
    os.makedirs("ckpt", exist_ok=True)
    Path("ckpt/tmp").write_text("step 4")
    os.replace("ckpt/tmp", "ckpt/latest.pt")
    oldest = min(Path("ckpt").glob("[0-9]*.pt"), key=lambda path: path.stat().st_mtime)
    oldest.unlink()
    assert Path("ckpt/latest.pt").read_text() == "step 4"
    assert not oldest.exists()
    assert len(os.listdir("ckpt")) == 4
    assert set(run.files) == {root / "ckpt/latest.pt"}
    assert run.files[root / "ckpt/latest.pt"].read_text() == "step 4"


def test_what_is_written_is_listed_also_after_the_run(root: Path, away: Path) -> None:
    with thrown_away(root, away) as run:
        with open("train.log", "a") as file:
            file.write("line 2\n")
        Path("new/deep").mkdir(parents=True)
        Path("new/deep/x").touch()
    assert set(run.files) == {root / "train.log", root / "new/deep/x"}
    assert run.files[root / "train.log"].read_text() == "line 1\nline 2\n"
    assert all(away in path.parents for path in run.files.values())


def test_a_relative_path_follows_the_current_folder(run: Redirect, root: Path) -> None:
    os.chdir("data")
    Path("x").write_text("1")
    os.makedirs("../fresh/inner")
    os.chdir("../fresh/inner")
    assert Path.cwd() == root / "fresh/inner"
    Path("y").write_text("2")
    os.chdir("..")
    assert os.listdir() == ["inner"]
    assert Path("../data/x").read_text() == "1"
    assert set(run.files) == {root / "data/x", root / "fresh/inner/y"}


def test_a_link_out_of_the_folder_is_followed_to_a_copy(
    root: Path, away: Path, tmp_path: Path
) -> None:
    outside = plant(tmp_path / "outside")
    before = snapshot(outside)
    (root / "out").symlink_to(outside)
    (root / "log").symlink_to(outside / "train.log")
    with thrown_away(root, away) as run:
        Path("log").write_text("other")
        Path("out/data/a.bin").write_bytes(b"")
        shutil.rmtree("out/ckpt")
        assert (outside / "train.log").read_text() == "other"
        assert not (outside / "ckpt").exists()
        assert outside / "train.log" in run.files
    assert snapshot(outside) == before


def test_links_of_the_system_lead_nowhere_else(run: Redirect) -> None:
    with open("train.log") as file:
        Path(f"/proc/self/fd/{file.fileno()}").write_text("by descriptor")
    assert Path("train.log").read_text() == "by descriptor"
    Path("/proc/self/cwd/config.yaml").write_text("by current folder")
    assert Path("config.yaml").read_text() == "by current folder"


def test_low_level_calls_see_the_same_tree(run: Redirect) -> None:
    descriptor = os.open("train.log", os.O_RDWR)
    with os.fdopen(descriptor, "r+") as file:
        assert file.read() == "line 1\n"
        file.write("line 2\n")
    assert os.stat("train.log").st_size == 14
    folder = os.open("data", os.O_RDONLY)
    try:
        os.unlink("a.bin", dir_fd=folder)
        os.mkdir("made", dir_fd=folder)
        os.rename("deep", "moved", src_dir_fd=folder, dst_dir_fd=folder)
        assert sorted(os.listdir(folder)) == ["made", "moved"]
        assert os.stat("moved", dir_fd=folder).st_mode == os.stat("data/moved").st_mode
    finally:
        os.close(folder)
    with pytest.raises(FileNotFoundError, match="linked"):
        os.stat("linked")


def test_an_open_file_gives_no_way_to_change_the_real_one(run: Redirect) -> None:
    with open("train.log") as file:
        os.fchmod(file.fileno(), 0o600)
        os.chmod(file.fileno(), 0o640)
        os.utime(file.fileno(), (5, 5))
        os.setxattr(file.fileno(), "user.note", b"1")
    status = os.stat("train.log")
    assert (status.st_mode & 0o777, status.st_mtime) == (0o640, 5)
    assert os.getxattr("train.log", "user.note") == b"1"


def test_modes_and_times_are_those_that_the_script_gave(run: Redirect, root: Path) -> None:
    before = os.stat("ckpt").st_mtime_ns
    os.chmod("config.yaml", 0o600)
    os.utime("data", (1, 2))
    with open("ckpt/1.pt", "r+") as file:
        file.write("STEP")
    assert os.stat("config.yaml").st_mode & 0o777 == 0o600
    assert os.stat("data").st_mtime == 2
    assert os.stat("ckpt").st_mtime_ns == before
    os.unlink("ckpt/1.pt")
    assert os.stat("ckpt").st_mtime_ns > before


def test_a_name_beside_it_keeps_the_old_content(root: Path, away: Path) -> None:
    os.link(root / "train.log", root / "same.log")
    with thrown_away(root, away):
        Path("train.log").write_text("new")
        assert Path("same.log").read_text() == "line 1\n"
        os.link("train.log", "second.log")
        Path("second.log").write_text("both")
        assert Path("train.log").read_text() == "both"


def test_a_folder_that_was_deleted_comes_back_empty(run: Redirect) -> None:
    shutil.rmtree("data")
    assert not os.path.exists("data/deep/er/b.txt")
    os.makedirs("data/deep")
    assert os.listdir("data/deep") == []
    shutil.copytree("ckpt", "data/ckpt", symlinks=True)
    shutil.rmtree("ckpt")
    os.rename("data", "ckpt")
    assert Path("ckpt/ckpt/latest.pt").read_text() == "step 3"


def test_everything_can_be_deleted(run: Redirect) -> None:
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.remove(name)
    assert os.listdir() == []
    assert list(Path().rglob("*")) == []


def test_the_standard_library_writes_to_the_overlay(run: Redirect, root: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as kept:
        kept.write(b"kept")
    with tempfile.NamedTemporaryFile(dir=".") as gone:
        assert os.path.exists(gone.name)
    with tempfile.TemporaryDirectory(dir="data") as folder:
        Path(folder, "x").write_text("x")
    with zipfile.ZipFile("data/a.bin", "w") as archive:
        archive.writestr("train.log", "line")
    handler = logging.FileHandler("train.log")
    handler.emit(logging.makeLogRecord({"msg": "logged"}))
    handler.close()
    with open("table.csv", "w", newline="") as file:
        csv.writer(file).writerow([1, 2])
    with open("object.pkl", "wb") as file:
        pickle.dump({"a": 1}, file)
    shutil.make_archive("all", "tar", "ckpt")
    assert Path("train.log").read_text() == "line 1\nlogged\n"
    assert zipfile.ZipFile("data/a.bin").namelist() == ["train.log"]
    with open("object.pkl", "rb") as file:
        assert pickle.load(file) == {"a": 1}
    written = {str(path.relative_to(root)) for path in run.files}
    name = Path(kept.name).name
    assert written == {"data/a.bin", "train.log", "table.csv", "object.pkl", "all.tar", name}


def test_numpy_writes_to_the_overlay(run: Redirect) -> None:
    np.save("array.npy", np.arange(3))
    np.savez("arrays.npz", a=np.ones(2))
    np.arange(4, dtype=np.uint8).tofile("data/raw")
    mapped = np.memmap("data/a.bin", dtype=np.uint8, mode="r+")
    mapped[:] = 7
    mapped.flush()
    made = np.memmap("made.bin", dtype=np.int32, mode="w+", shape=(2,))
    made[:] = 1
    del mapped, made
    assert np.load("array.npy").sum() == 3
    assert np.load("arrays.npz")["a"].sum() == 2
    assert np.fromfile("data/raw", np.uint8).tolist() == [0, 1, 2, 3]
    assert set(Path("data/a.bin").read_bytes()) == {7}


def test_a_database_is_copied_with_what_is_not_yet_in_it(root: Path, away: Path) -> None:
    path = root / "runs.db"
    writer = sqlite3.connect(path)
    writer.execute("pragma journal_mode=wal")
    writer.execute("create table run(step)")
    writer.execute("insert into run values (1)")
    writer.commit()
    with thrown_away(root, away) as run:
        for address in ("runs.db", f"file:{path}?mode=rw"):
            connection = sqlite3.connect(address, uri=address.startswith("file:"))
            connection.execute("insert into run values (2)")
            connection.commit()
            connection.close()
        connection = sqlite3.connect(path)
        assert connection.execute("select step from run").fetchall() == [(1,), (2,), (2,)]
        with pytest.raises(sqlite3.DatabaseError, match="authori"):
            connection.execute("attach 'other.db' as other")
        with pytest.raises(sqlite3.DatabaseError, match="authori"):
            connection.execute("vacuum into 'train.log'")
        connection.close()
        assert any("SQLite" in notice for notice in run.notices)
    assert writer.execute("select step from run").fetchall() == [(1,)]
    writer.close()


def test_what_goes_by_the_functions_is_refused(root: Path, away: Path) -> None:
    held, opened = os.remove, io.FileIO
    functions = [held]
    with thrown_away(root, away):
        with pytest.raises(RedirectError, match=r"train\.log: os\.remove would change"):
            functions[0]("train.log")
        with pytest.raises(RedirectError, match="config"):
            opened("config.yaml", "w")
        with pytest.raises(PermissionError):
            opened("linked/../new", "w")
        opened("train.log").close()
        opened("/dev/null", "w").close()
    assert issubclass(RedirectError, HotloopError)


def test_what_may_be_written_is_not_redirected(root: Path, away: Path, tmp_path: Path) -> None:
    results, single = tmp_path / "results", tmp_path / "one.json"
    results.mkdir()
    with thrown_away(root, away, writable=[results, single]) as run:
        (results / "x").write_text("real")
        single.write_text("{}")
        free = Path(tempfile.gettempdir(), "y")
        free.write_text("real")
        io.FileIO(free, "a").close()  # refused, if it were not free
        Path("/dev/null").write_text("gone")
    assert not run.files
    assert (results / "x").read_text() == "real"
    assert single.exists()


def test_the_current_folder_is_redirected_also_in_the_temporary_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(root)
    before = snapshot(root)
    (tmp_path / "run").mkdir()
    with Redirect(tmp_path / "run") as run:
        Path("train.log").unlink()
        Path(tmp_path / "free").touch()
    assert snapshot(root) == before
    assert (tmp_path / "free").exists()
    assert not run.files


def test_all_is_put_back_also_after_an_error(root: Path, away: Path) -> None:
    names = {name: getattr(os, name) for name in dir(os)}
    environment, opened, connect = dict(os.environ), open, sqlite3.connect
    sets = [set(each) for each in (os.supports_dir_fd, os.supports_fd)]
    finders = list(sys.meta_path)

    def fail() -> None:
        with thrown_away(root, away):
            os.environ["MADE_BY_THE_SCRIPT"] = "1"
            os.chdir("data")
            module = type(sys)("made_by_the_script")
            module.remove = os.remove  # type: ignore[attr-defined]
            sys.modules["made_by_the_script"] = module
            assert os.remove is not names["remove"]
            raise KeyError("of the script")

    with pytest.raises(KeyError):
        fail()
    module = sys.modules.pop("made_by_the_script")
    assert module.remove is names["remove"]
    assert {name: getattr(os, name) for name in dir(os)} == names
    assert (dict(os.environ), open, sqlite3.connect) == (environment, opened, connect)
    assert [set(each) for each in (os.supports_dir_fd, os.supports_fd)] == sets
    assert sys.meta_path == finders
    (root / "data/written").write_text("really")
    assert (root / "data/written").exists()


def test_a_function_that_was_held_works_on_afterwards(root: Path, away: Path) -> None:
    with thrown_away(root, away):
        held = [os.unlink, open]
        assert pickle.loads(pickle.dumps(os.unlink)) is os.unlink
        Path("x").touch()
        type("Holder", (), {"unlink": os.unlink})().unlink("x")  # not bound as a method
    held[0](root / "train.log")
    assert not (root / "train.log").exists()


def test_one_at_a_time_and_into_a_folder_that_is_there(run: Redirect, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="already"), Redirect(tmp_path):
        pass
    with pytest.raises(SettingError, match="make it"):
        Redirect(tmp_path / "nowhere")


def test_another_program_is_noted_once(run: Redirect) -> None:
    for _ in range(2):
        subprocess.run([sys.executable, "-c", ""], check=True)
    assert sum(Path(sys.executable).name in notice for notice in run.notices) == 1
    assert "throw-away" in run.notices[0]


def test_a_forked_process_shares_what_is_written_and_deleted(run: Redirect) -> None:
    os.listdir("ckpt")
    pid = os.fork()
    if pid == 0:
        try:
            Path("ckpt/1.pt").unlink()
            Path("ckpt/9.pt").write_text("of the child")
        finally:
            gc.freeze()
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not os.path.exists("ckpt/1.pt")
    assert Path("ckpt/9.pt").read_text() == "of the child"


SCRIPT = """
import multiprocessing, os, sys, pathlib
def work(name):
    pathlib.Path(name).write_text("of " + multiprocessing.current_process().name)
    pathlib.Path("data/a.bin").unlink()
if __name__ == "__main__":
    from hotloop.redirect import Redirect
    with Redirect(pathlib.Path(sys.argv[1])) as run:
        process = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=("x",))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert pathlib.Path("x").read_text().startswith("of "), "not shared"
        assert not os.path.exists("data/a.bin")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_spawned_process_joins_the_run(root: Path, tmp_path: Path, method: str) -> None:
    script, folder, before = tmp_path / "script.py", tmp_path / "run", snapshot(root)
    script.write_text(SCRIPT)
    folder.mkdir()
    subprocess.run([sys.executable, script, folder, method], cwd=root, check=True, timeout=120)
    assert snapshot(root) == before
