"""The journal: every run and every try of a folder, in one SQLite database.

Each call opens the database, does one transaction and closes it. A writer takes the lock before it
reads, and waits for others; what is written is on the disk when the call returns. SQLite takes an
unfinished transaction of a killed process back when the next one opens the database.
"""

import contextlib
import dataclasses
import json
import sqlite3
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.errors import JournalError
from hotloop.loop.run import FOLDER
from hotloop.repeat.entries import Metric, RunEntry, TryEntry

PATH = FOLDER / "journal.db"
FORMAT = 1
WAIT_S = 30.0
_MAGIC = b"SQLite format 3\x00"
_SCHEMA = (
    """CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        verb TEXT NOT NULL,
        target TEXT NOT NULL,
        "commit" TEXT,
        diff_hash TEXT,
        host TEXT NOT NULL,
        settings TEXT NOT NULL,
        metrics TEXT NOT NULL,
        seconds REAL,
        cost REAL,
        complete INTEGER NOT NULL,
        file TEXT
    )""",
    """CREATE TABLE tries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        hypothesis TEXT NOT NULL,
        target TEXT NOT NULL,
        before TEXT NOT NULL,
        after TEXT NOT NULL,
        verdict TEXT NOT NULL,
        decision TEXT NOT NULL,
        predicted TEXT,
        achieved TEXT,
        stage TEXT,
        effort_hours REAL,
        run INTEGER NOT NULL REFERENCES runs (number)
    )""",
    f"PRAGMA user_version = {FORMAT}",
)
_JSON = ("host", "settings", "metrics", "predicted", "achieved")
_AWAY = "move it away, and the next run begins a new one; saved runs stay as they are"


@dataclass(frozen=True)
class Contents:
    """All that a journal holds, in the order in which it was noted."""

    runs: list[RunEntry]
    tries: list[TryEntry]


@dataclass(frozen=True)
class Journal:
    """The journal in a file, which need not exist yet. wait_s: for others that write, in seconds.

    Every method raises JournalError, in one sentence, for a file that is no journal, is damaged or
    was written by a newer version, and where it cannot be read or written.
    """

    path: Path = PATH
    wait_s: float = WAIT_S

    def add(self, run: RunEntry, tried: TryEntry | None = None) -> int:
        """Note a run, and the try that it was made for: both or neither. Returns its number."""
        with self._writing() as connection:
            number = _insert(connection, "runs", run)
            if tried is not None:
                _insert(connection, "tries", dataclasses.replace(tried, run=number))
        return number

    def prepare(self) -> None:
        """Make the journal if there is none; whatever speaks against writing is raised now."""
        with self._writing() as connection:
            # A transaction that writes nothing does not ask the disk for room, or for permission.
            connection.execute(f"PRAGMA user_version = {FORMAT}")

    def contents(self) -> Contents:
        """Everything that was noted; nothing where there is no journal."""
        if not self.path.exists():
            return Contents([], [])
        with self._opened("rw") as connection:
            connection.execute("BEGIN")
            version = self._version(connection)
            if not version:
                return Contents([], [])
            runs = connection.execute("SELECT * FROM runs ORDER BY number").fetchall()
            tries = connection.execute("SELECT * FROM tries ORDER BY number").fetchall()
        try:
            return Contents([_run(dict(row)) for row in runs], [_try(dict(row)) for row in tries])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JournalError(f"{self.path} was edited or damaged ({error}): {_AWAY}") from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other writer is part of, in a journal of this format."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        with self._opened("rwc") as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not self._version(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection; closing it takes back what was not committed."""
        try:
            place = f"{self.path.absolute().as_uri()}?mode={mode}"
            with contextlib.closing(
                sqlite3.connect(place, uri=True, timeout=self.wait_s, isolation_level=None)
            ) as connection:
                connection.row_factory = sqlite3.Row
                # The folder is synced as well: a commit survives a power cut.
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError, MemoryError) as error:
            # The last two: a damaged name or length, which SQLite hands on.
            raise self._problem(error) from error

    def _version(self, connection: sqlite3.Connection) -> int:
        """The format of the journal, 0 for an empty file."""
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version > FORMAT:
            raise JournalError(
                f"{self.path} was written by a newer hotloop (format {version}; this one reads up "
                f"to {FORMAT}); install the newer one to go on with it"
            )
        if tables and not version:
            raise JournalError(f"{self.path} is a database, but no journal of hotloop: {_AWAY}")
        # SQLite itself misses a cut within the last page. Nobody writes to the file meanwhile.
        page = connection.execute("PRAGMA page_size").fetchone()[0]
        if version and self.path.stat().st_size % page:
            raise JournalError(f"{self.path} was cut short: {_AWAY}")
        return version

    def _problem(self, error: Exception) -> JournalError:
        """The one sentence for what SQLite says."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code == sqlite3.SQLITE_NOTADB and not self._begins_as_database():
            return JournalError(f"{self.path} is no journal of hotloop: {_AWAY}")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            # SQLite may quote what it could not read, at length and in several lines.
            quoted = textwrap.shorten(str(error), 80, placeholder="…")
            return JournalError(f"{self.path} was cut short or damaged ({quoted}): {_AWAY}")
        if code == sqlite3.SQLITE_BUSY:
            return JournalError(
                f"{self.path} was locked by another process for {self.wait_s:g} s: wait for that "
                "one, or end it"
            )
        return self._unwritable(str(error))

    def _unwritable(self, why: str) -> JournalError:
        return JournalError(
            f"the journal {self.path} could not be opened or written: {why}. Free some room, make "
            "the folder writable, or work in another folder"
        )

    def _begins_as_database(self) -> bool:
        try:
            with open(self.path, "rb") as file:
                return _MAGIC.startswith(file.read(len(_MAGIC)))
        except OSError:
            return False


def _insert(connection: sqlite3.Connection, table: str, entry: RunEntry | TryEntry) -> int:
    """Add a row; returns its number."""
    row = {
        field.name: _stored(field.name, getattr(entry, field.name))
        for field in dataclasses.fields(entry)
        if field.name != "number"
    }
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("?" for _ in row)
    cursor = connection.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(row.values())
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _stored(name: str, value: Any) -> Any:
    if name not in _JSON or value is None:
        return value
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """A metric as a dict; what JSON does not know of the settings as text."""
    return dataclasses.asdict(value) if isinstance(value, Metric) else str(value)


def _run(row: dict[str, Any]) -> RunEntry:
    _load_json(row)
    metrics = {name: Metric(**metric) for name, metric in row["metrics"].items()}
    return RunEntry(**row | {"metrics": metrics, "complete": bool(row["complete"])})


def _try(row: dict[str, Any]) -> TryEntry:
    _load_json(row)
    gains = {name: row[name] and Metric(**row[name]) for name in ("predicted", "achieved")}
    return TryEntry(**row | gains)


def _load_json(row: dict[str, Any]) -> None:
    """Read the columns of a row that hold JSON."""
    for name in _JSON:
        if row.get(name) is not None:
            row[name] = json.loads(row[name])
