"""The files by which the ranks of one job and their launcher work together, in one folder."""

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hotloop.loop.ranks.schedule import RankSchedule
from hotloop.recognise.rank_log import RankRows
from hotloop.recognise.settings import RecogniseSettings

# Where each rank finds the folder.
FOLDER_VARIABLE = "HOTLOOP_RANKS"


@dataclass(frozen=True)
class Order:
    """What rank 0 measures. verb: "benchmark" or "simplify". limits: further arguments of it."""

    verb: str
    settings: Any
    recognise: RecogniseSettings | None
    limits: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RankFiles:
    """The folder of a job."""

    folder: Path

    @staticmethod
    def of_this_process() -> "RankFiles":
        """Where the launcher has said that they are."""
        return RankFiles(Path(os.environ[FOLDER_VARIABLE]))

    @property
    def redirected(self) -> Path:
        """The folder that takes what the scripts write."""
        return self.folder / "written"

    @property
    def run(self) -> Path:
        """The run that rank 0 has measured."""
        return self.folder / "run.hotloop"

    def schedule(self, ranks: int) -> RankSchedule:
        """What the ranks share."""
        return RankSchedule(self.folder / "schedule", ranks)

    def put(self, name: str, value: Any) -> None:
        """Write an object, as a whole or not at all."""
        beside = self.folder / f".{name}"
        beside.write_bytes(pickle.dumps(value))
        beside.rename(self.folder / name)

    def get(self, name: str) -> Any:
        """Read an object; None if it was not written."""
        path = self.folder / name
        return pickle.loads(path.read_bytes()) if path.exists() else None

    def log(self, rank: int) -> Path:
        """Where a rank writes its log."""
        return self.folder / f"log-{rank}"

    def rows(self, rank: int) -> RankRows | None:
        """What a rank has logged; None if it did not get that far."""
        rows: RankRows | None = self.get(self.log(rank).name)
        return rows
