"""A script sees under redirection what it would have seen in a copy of its tree of its own."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.often import examples
from support.user_trees import plant, thrown_away

PATHS = (
    "train.log",
    "config.yaml",
    "data",
    "data/a.bin",
    "data/deep",
    "data/deep/er",
    "data/deep/er/b.txt",
    "data/deep/../a.bin",
    "ckpt",
    "ckpt/1.pt",
    "ckpt/latest.pt",
    "ckpt/new.pt",
    "linked",
    "linked/er/b.txt",
    "nowhere",
    "missing",
    "missing/below",
    "empty",
    "empty/new",
    "empty/",
    "train.log/below",
    ".",
)
paths = st.sampled_from(PATHS)


def kind_of(status: os.stat_result) -> tuple[int, int]:
    is_file = stat.S_ISREG(status.st_mode)
    return status.st_mode, status.st_size if is_file else 0


def opened(path: str, mode: str) -> tuple[str, bytes]:
    with open(path, mode, encoding="latin-1") as file:
        name = str(file.name)
        written = file.write("new") if mode != "r" else 0
        return name, (file.read() if "r" in mode else str(written)).encode()


def opened_by_flags(path: str, flags: int) -> bytes:
    descriptor = os.open(path, flags, 0o640)
    try:
        if flags & (os.O_WRONLY | os.O_RDWR):
            os.write(descriptor, b"low")
        return b"" if flags & os.O_WRONLY else os.pread(descriptor, 10, 0)
    finally:
        os.close(descriptor)


def walked(path: str) -> list[Any]:
    return sorted((at, sorted(folders), sorted(files)) for at, folders, files in os.walk(path))


def scanned(path: str) -> list[Any]:
    with os.scandir(path) as entries:
        return sorted(
            (
                entry.name,
                entry.path,
                entry.is_dir(),
                entry.is_file(),
                entry.is_symlink(),
                entry.is_dir(follow_symlinks=False),
                entry.stat(follow_symlinks=False).st_mode,
            )
            for entry in entries
        )


def asked(path: str) -> tuple[bool, ...]:
    ask = (os.path.exists, os.path.isfile, os.path.isdir, os.path.islink, os.path.lexists)
    return (*(bool(question(path)) for question in ask), os.access(path, os.R_OK))


def written_at_once(path: str, times: int) -> str:
    Path(path).write_text("whole" * times)
    return Path(path).read_text()


def moved(path: str, to: str) -> str:
    """`shutil.move`; not into the folder itself through a link.

    That is copied into its copy until names are too long or the stack is full, and where that is
    depends on where the tree lies.
    """
    real_path, real_to = os.path.realpath(path), os.path.realpath(to)
    if os.path.commonpath((real_path, real_to)) == real_path:
        raise FileExistsError(errno.EEXIST, "in itself", path)
    return str(shutil.move(path, to))


def real(path: str) -> str:
    return os.path.relpath(os.path.realpath(path))


FLAGS = (
    os.O_RDONLY,
    os.O_WRONLY,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    os.O_WRONLY | os.O_TRUNC,
    os.O_WRONLY | os.O_APPEND | os.O_CREAT,
    os.O_RDONLY | os.O_DIRECTORY,
    os.O_RDWR | os.O_NOFOLLOW,
)


def one(call: Callable[..., Any], *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(call), st.tuples(*arguments))


def of_os(name: str) -> Callable[..., Any]:
    """The function as it is when it is called."""

    def call(*arguments: Any) -> Any:
        return getattr(os, name)(*arguments)

    call.__name__ = name
    return call


operations = st.one_of(
    one(opened, paths, st.sampled_from(("r", "w", "a", "x", "r+", "w+", "a+"))),
    one(opened_by_flags, paths, st.sampled_from(FLAGS)),
    one(written_at_once, paths, st.integers(0, 2)),
    one(of_os("mkdir"), paths),
    one(of_os("makedirs"), paths),
    one(of_os("rmdir"), paths),
    one(of_os("unlink"), paths),
    one(of_os("remove"), paths),
    one(of_os("rename"), paths, paths),
    one(of_os("replace"), paths, paths),
    one(of_os("symlink"), paths, paths),
    one(of_os("link"), paths, paths),
    one(of_os("truncate"), paths, st.integers(0, 20)),
    one(of_os("chmod"), paths, st.sampled_from((0o600, 0o755))),
    one(lambda path: os.utime(path, (1, 1)), paths),
    one(shutil.rmtree, paths),
    one(shutil.copy2, paths, paths),
    one(shutil.copytree, paths, st.just("copied")),
    one(moved, paths, paths),
    one(of_os("listdir"), st.just("data/..")),
    one(of_os("readlink"), paths),
    one(asked, paths),
    one(walked, paths),
    one(scanned, paths),
    one(real, paths),
    one(lambda path: kind_of(os.stat(path)), paths),
    one(lambda path: kind_of(os.lstat(path)), paths),
)


def results(steps: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
    """What each step returned or raised, and at the end the whole tree as it is shown."""
    found: list[Any] = []
    for call, arguments in [*steps, (everything, ())]:
        try:
            result = call(*arguments)
            found.append(sorted(result) if isinstance(result, list) else result)
        except OSError as error:
            found.append((type(error), error.errno, str(error)))
        except shutil.Error as error:
            found.append((type(error), str(error)))
    return found


def everything() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(Path().rglob("*")):
        status = path.lstat()
        content: Any = None
        if path.is_symlink():
            content = path.readlink()
        elif path.is_file():
            content = path.read_bytes()
        found[str(path)] = (*kind_of(status), content)
    return found


@settings(max_examples=examples(100))
@given(st.lists(operations, min_size=1, max_size=12))
def test_a_sequence_of_operations_is_as_on_a_copy_and_the_tree_stays(
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        # One after the other at the same place, for the links in it are absolute.
        root, here = folder / "user", Path.cwd()
        plant(root)
        os.chdir(root)
        try:
            expected = results(steps)
        finally:
            os.chdir(here)
        shutil.rmtree(root)
        plant(root)
        with thrown_away(root, folder / "away"):
            got = results(steps)
        for step, (one_got, one_expected) in enumerate(zip(got, expected, strict=True)):
            assert one_got == one_expected, f"step {step} of {steps}"
