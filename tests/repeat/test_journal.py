"""The journal: two writers or a killed one lose nothing, and what is no journal is refused."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import JournalError
from hotloop.repeat.entries import KEPT, Metric, RunEntry, TryEntry
from hotloop.repeat.journal import FORMAT, Contents, Journal
from support.disks import run_python_on_disk

WRITER = """
import sys
from pathlib import Path
from hotloop.repeat.entries import RunEntry, TryEntry
from hotloop.repeat.journal import Journal
journal = Journal(Path(sys.argv[1]))
for k in range(int(sys.argv[3])):
    name = f"{sys.argv[2]} {k}"
    tried = TryEntry("now", name, "t", "a", "b", "faster", "kept")
    journal.add(RunEntry("now", "benchmark", name, {}), tried)
    print(name, flush=True)
"""
# A transaction so large that pages of it are in the file before it ends, and then nothing more.
HALF_DONE = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
for k in range(2000):
    connection.execute(
        "INSERT INTO runs (at, verb, target, host, settings, metrics, complete)"
        " VALUES ('now', 'benchmark', 'half done', '{}', '{}', '{}', 1)"
    )
print("half done", flush=True)
time.sleep(600)
"""


def run_entry(target: str = "loops.py:two_stages") -> RunEntry:
    return RunEntry(
        at="2026-11-23T10:00:00+00:00",
        verb="benchmark",
        target=target,
        metrics={"rate": Metric(10.0, 9.0, 11.0, "samples/s"), "seconds": Metric(3.0, unit="s")},
        commit="c0ffee",
        diff_hash="abc",
        host={"processor": "one", "cores": 2},
        settings={"seconds": 10.0, "worth": None},
        seconds=3.0,
        cost=0.25,
        file=".hotloop/x.run",
    )


def try_entry(hypothesis: str = "vectorise the loader") -> TryEntry:
    return TryEntry(
        at="2026-11-23T10:00:00+00:00",
        hypothesis=hypothesis,
        target="loops.py:two_stages",
        before="loops.py:two_stages at HEAD",
        after="loops.py:two_stages as it is",
        verdict="faster",
        decision=KEPT,
        predicted=Metric(0.2, 0.1, 0.3),
        achieved=Metric(0.18, 0.17, 0.19),
        stage="load",
        effort_hours=2.5,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / ".hotloop" / "journal.db")


@pytest.fixture
def filled(journal: Journal) -> Journal:
    """A journal of several pages."""
    for k in range(12):
        journal.add(run_entry(f"target {k} {'x' * 600}"), try_entry(f"try {k}"))
    return journal


def refused(journal: Journal) -> str:
    """The one sentence with which reading and writing are both refused."""
    with pytest.raises(JournalError) as reading:
        journal.contents()
    with pytest.raises(JournalError) as writing:
        journal.add(run_entry())
    assert str(reading.value) == str(writing.value)
    assert str(journal.path) in str(writing.value)
    assert "\n" not in str(writing.value)
    return str(writing.value)


# --- what is noted ------------------------------------------------------------------------------


def test_what_was_noted_is_read_again(journal: Journal) -> None:
    assert journal.add(run_entry(), try_entry()) == 1
    assert journal.add(run_entry("another")) == 2
    found = journal.contents()
    assert [run.number for run in found.runs] == [1, 2]
    assert found.runs[0] == replace(run_entry(), number=1)
    assert found.tries == [replace(try_entry(), number=1, run=1)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
METRIC = st.builds(Metric, NUMBER, st.none() | NUMBER, st.none() | NUMBER, TEXT)


@settings(max_examples=25)
@given(
    target=TEXT,
    metrics=st.dictionaries(TEXT, METRIC, max_size=3),
    noted=st.dictionaries(TEXT, st.none() | NUMBER | TEXT | st.lists(NUMBER, max_size=2)),
    hypothesis=TEXT,
    predicted=st.none() | METRIC,
    hours=st.none() | NUMBER,
)
def test_whatever_is_noted_is_read_again(
    target: str,
    metrics: dict[str, Metric],
    noted: dict[str, object],
    hypothesis: str,
    predicted: Metric | None,
    hours: float | None,
) -> None:
    run = RunEntry("now", "compare", target, metrics, settings=noted, seconds=hours, number=1)
    tried = TryEntry(
        *("now", hypothesis, target, "a", "b", "same", "reverted"),
        predicted=predicted,
        effort_hours=hours,
        run=1,
        number=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.db")
        journal.add(run, tried)
        assert journal.contents() == Contents([run], [tried])


def test_a_run_and_its_try_are_noted_both_or_neither(journal: Journal) -> None:
    journal.add(run_entry())
    nameless = replace(try_entry(), hypothesis=None)  # type: ignore[arg-type]
    with pytest.raises(JournalError):
        journal.add(run_entry(), nameless)
    found = journal.contents()
    assert (len(found.runs), len(found.tries)) == (1, 0)


def test_reading_where_nothing_was_noted_makes_nothing(journal: Journal) -> None:
    assert journal.contents() == Contents([], [])
    assert not journal.path.parent.exists()


def test_an_empty_file_is_a_journal_that_was_just_begun(journal: Journal) -> None:
    journal.path.parent.mkdir()
    journal.path.touch()
    assert journal.contents() == Contents([], [])
    journal.add(run_entry())
    assert len(journal.contents().runs) == 1


# --- two writers, and killed ones ---------------------------------------------------------------


def start_writer(journal: Journal, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(journal.path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_two_processes_that_write_at_once_lose_nothing(journal: Journal) -> None:
    writers = [start_writer(journal, name, 200) for name in "ab"]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    found = journal.contents()
    wanted = {f"{name} {k}" for name in "ab" for k in range(200)}
    assert len(found.runs) == len(found.tries) == 400
    assert {run.target for run in found.runs} == wanted
    targets = {run.number: run.target for run in found.runs}
    assert all(targets[each.run] == each.hypothesis for each in found.tries)


def test_a_killed_writer_leaves_all_that_it_had_noted(journal: Journal) -> None:
    writer = start_writer(journal, "a", 10**6)
    assert writer.stdout is not None
    said = [writer.stdout.readline().strip() for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    said += [line.strip() for line in writer.stdout]
    writer.stdout.close()
    writer.wait()
    noted = [run.target for run in journal.contents().runs]
    assert noted[: len(said)] == said
    # The last one may have been noted and not said any more.
    assert len(noted) in (len(said), len(said) + 1)
    journal.add(run_entry())


def test_a_writer_killed_in_the_middle_of_writing_leaves_what_was_before(filled: Journal) -> None:
    before = filled.contents()
    size = filled.path.stat().st_size
    writer = subprocess.Popen(
        [sys.executable, "-c", HALF_DONE, str(filled.path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half done\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    assert filled.path.stat().st_size > size  # half of it is in the file
    assert filled.contents() == before
    assert filled.add(run_entry()) == len(before.runs) + 1


def test_a_lock_that_stays_is_said(filled: Journal) -> None:
    impatient = Journal(filled.path, wait_s=0.01)
    holder = sqlite3.connect(filled.path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert "locked by another process" in refused(impatient)
    holder.execute("ROLLBACK")
    holder.close()
    impatient.add(run_entry())


# --- what is no journal -------------------------------------------------------------------------


def test_a_newer_journal_is_refused(filled: Journal) -> None:
    with sqlite3.connect(filled.path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = filled.path.read_bytes()
    said = refused(filled)
    assert f"newer hotloop (format {FORMAT + 1}; this one reads up to {FORMAT})" in said
    assert filled.path.read_bytes() == before


@pytest.mark.parametrize("content", [b"my notes\n", b"x" * 5000, b"PK\x03\x04" + bytes(600)])
def test_a_file_that_is_no_database_is_refused(journal: Journal, content: bytes) -> None:
    journal.path.parent.mkdir()
    journal.path.write_bytes(content)
    assert "is no journal of hotloop: move it away" in refused(journal)
    assert journal.path.read_bytes() == content


def test_another_programs_database_is_refused(journal: Journal) -> None:
    journal.path.parent.mkdir()
    with sqlite3.connect(journal.path) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
    connection.close()
    assert "is a database, but no journal of hotloop" in refused(journal)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.db")
    for k in range(12):
        journal.add(run_entry(f"target {k} {'x' * 600}"), try_entry(f"try {k}"))
    return journal.path.read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_a_journal_that_was_cut_short_is_refused_wherever_it_was_cut(
    content: bytes, data: st.DataObject
) -> None:
    # Up to one byte, SQLite takes a file for an empty one.
    cut = data.draw(st.integers(2, len(content) - 1))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.db")
        journal.path.write_bytes(content[:cut])
        assert "was cut short" in refused(journal)


@settings(max_examples=150)
@given(data=st.data())
def test_a_journal_with_a_changed_byte_is_read_or_refused_and_nothing_else(
    content: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[at] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.db")
        journal.path.write_bytes(changed)
        with contextlib.suppress(JournalError):
            assert len(journal.contents().runs) <= 12


def test_a_folder_in_its_place_is_refused(journal: Journal) -> None:
    journal.path.mkdir(parents=True)
    assert "could not be opened or written" in refused(journal)


def test_a_file_in_the_place_of_its_folder_is_refused(journal: Journal) -> None:
    journal.path.parent.touch()
    with pytest.raises(JournalError, match="could not be opened or written") as error:
        journal.add(run_entry())
    assert "\n" not in str(error.value)


ON_A_DISK = """
from pathlib import Path
from hotloop.errors import JournalError
from hotloop.repeat.entries import RunEntry
from hotloop.repeat.journal import Journal
journal = Journal(Path("disk/.hotloop/journal.db"))
entry = RunEntry("now", "benchmark", "x" * 500, {})
noted = 0
try:
    while noted < 1000:
        journal.add(entry)
        noted += 1
except JournalError as error:
    print(error)
print(noted, len(journal.contents().runs))
"""


def test_a_full_disk_is_said_and_what_was_noted_stays(tmp_path: Path) -> None:
    done = run_python_on_disk(ON_A_DISK, tmp_path, size_kb=128)
    said, counts = done.stdout.splitlines()
    assert "could not be opened or written" in said
    assert "full" in said
    noted, read = map(int, counts.split())
    assert noted == read > 0


MAKE = "from pathlib import Path\nfrom hotloop.repeat.journal import Journal\n"


@pytest.mark.long
def test_a_read_only_folder_is_said_and_can_still_be_read(tmp_path: Path) -> None:
    made = f"{MAKE}Journal(Path('disk/.hotloop/journal.db')).prepare()"
    between = f'{sys.executable} -c "{made}" && mount -o remount,ro disk'
    done = run_python_on_disk(ON_A_DISK, tmp_path, between=between)
    assert "could not be opened or written" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "0 0"


def test_a_read_only_folder_without_a_journal_is_said(tmp_path: Path) -> None:
    done = run_python_on_disk(ON_A_DISK, tmp_path, between="mount -o remount,ro disk")
    assert "could not be opened or written" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "0 0"


@pytest.mark.long
def test_preparing_finds_out_before_anything_is_noted(tmp_path: Path) -> None:
    made = f"{MAKE}Journal(Path('disk/.hotloop/journal.db')).prepare()"
    between = f'{sys.executable} -c "{made}" && mount -o remount,ro disk'
    done = run_python_on_disk(made, tmp_path, between=between)
    assert "JournalError" in done.stderr
