"""A small tree of a user's files, and what it looks like to somebody who checks all of it."""

import multiprocessing
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotloop.redirect import Redirect

DAY_NS = 86_400 * 10**9


def plant(root: Path) -> Path:
    """Make files, folders, links, a read-only file, a deep folder; with times of long ago."""
    for folder in ("data/deep/er", "ckpt", "empty"):
        (root / folder).mkdir(parents=True)
    (root / "train.log").write_text("line 1\n")
    (root / "config.yaml").write_text("seed: 1\n")
    (root / "config.yaml").chmod(0o444)
    (root / "data/a.bin").write_bytes(bytes(range(256)))
    (root / "data/deep/er/b.txt").write_text("b")
    for step in (1, 2, 3):
        (root / f"ckpt/{step}.pt").write_text(f"step {step}")
    (root / "ckpt/latest.pt").symlink_to("3.pt")
    (root / "ckpt/absolute.pt").symlink_to(root / "ckpt/2.pt")
    (root / "linked").symlink_to("data/deep")
    (root / "nowhere").symlink_to("missing")
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(DAY_NS, DAY_NS + number * 10**6), follow_symlinks=False)
    os.utime(root, ns=(DAY_NS, DAY_NS))
    return root


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """By path: its kind and mode, its time, its content or where it leads."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *sorted(root.rglob("*"))):
        status = path.lstat()
        content: object = None
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)  # noqa: PTH115
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_nlink, content)
    return found


@contextmanager
def thrown_away(root: Path, folder: Path, **options: list[Path]) -> Iterator[Redirect]:
    """Redirect a block that runs in `root`; check that nothing there has changed after it.

    The temporary folder is another one than that of the tests, which would be free.
    """
    before, here, usual = snapshot(root), Path.cwd(), tempfile.tempdir
    # Where multiprocessing makes its sockets: in the temporary folder of when it needed one first.
    of_process = multiprocessing.process.current_process()._config
    sockets = of_process.pop("tempdir", None)
    (folder / "run").mkdir(parents=True)
    # Its path is short, for sockets are made in it.
    with tempfile.TemporaryDirectory(prefix="h") as temporary:
        tempfile.tempdir = temporary
        os.chdir(root)
        try:
            with Redirect(folder / "run", **options) as redirect:
                yield redirect
            assert Path.cwd() == root
        finally:
            os.chdir(here)
            tempfile.tempdir = usual
            of_process.pop("tempdir", None)
            if sockets is not None:
                of_process["tempdir"] = sockets
    assert snapshot(root) == before
