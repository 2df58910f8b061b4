"""Threads of a script that use files beside it, as a logger does while checkpoints are renamed."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.user_trees import plant, thrown_away

THREADS, RENAMES = 3, 200


@contextmanager
def _switched_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_threads_see_what_each_of_them_has_written(tmp_path: Path) -> None:
    found: dict[str, bool] = {}
    renamed = threading.Event()

    def log(name: str) -> None:
        rows = 0
        while not renamed.is_set():
            with open(name, "a") as file:
                file.write("row\n")
            rows += 1
            os.listdir("/proc")
        found[name] = Path(name).read_text() == "row\n" * rows

    with thrown_away(plant(tmp_path / "user"), tmp_path / "away"), _switched_often():
        threads = [
            threading.Thread(target=log, args=(f"ckpt/{number}.csv",)) for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(RENAMES):
                Path("ckpt/new").write_text(str(number))
                os.replace("ckpt/new", "ckpt/1.pt")
                assert Path("ckpt/1.pt").read_text() == str(number)
        finally:
            renamed.set()
            for thread in threads:
                thread.join()
    assert found == dict.fromkeys((f"ckpt/{number}.csv" for number in range(THREADS)), True)
