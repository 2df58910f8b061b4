"""Another version of the code, in a git worktree of its own that goes away with its use."""

import contextlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import SettingError, nearest
from hotloop.repeat import git
from hotloop.repeat.afterwards import Afterwards
from hotloop.repeat.environment import environment_for
from hotloop.repeat.sides import Place

_PREFIX = "hotloop-worktree-"
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Repository:
    """The git repository of a folder. top: its working tree; folder: where in it the user is."""

    top: Path
    folder: Path

    @classmethod
    def of(cls, folder: Path, option: str) -> "Repository":
        """The repository that holds a folder. Raises: SettingError if there is none."""
        try:
            top = _git(folder, "rev-parse", "--show-toplevel")
        except FileNotFoundError:
            raise SettingError(f"{option}: git is not installed; expected it on PATH") from None
        except _GitError:
            raise SettingError(
                f"{option}: {folder} is in no git repository, so it has no other versions; "
                "compare two targets instead"
            ) from None
        return cls(Path(top).resolve(), folder.resolve())

    def commit(self, ref: str, option: str) -> str:
        """The commit that a branch, tag or hash names. Raises: SettingError if there is none."""
        if not ref or ref.startswith("-"):
            raise SettingError(f"{option}: expected a commit, a branch or a tag, got {ref!r}")
        try:
            return _git(self.top, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        except _GitError:
            names = _git(self.top, "for-each-ref", "--format=%(refname:short)").splitlines()
            hint = nearest(ref, names)
            raise SettingError(f"{option}: no commit {ref!r} in {self.top}{hint}") from None

    def has(self, ref: str) -> bool:
        """Whether a branch, tag or hash names a commit."""
        try:
            self.commit(ref, "")
        except SettingError:
            return False
        return True

    def is_dirty(self) -> bool:
        """Whether files that git tracks differ from the last commit."""
        return bool(_git(self.top, "status", "--porcelain", "--untracked-files=no"))

    @contextlib.contextmanager
    def at(self, ref: str, option: str, *, own_environment: bool = True) -> Iterator[Place]:
        """The same folder at another commit, in a worktree that is removed with the block's end.

        own_environment: where the commit declares other dependencies than the working tree, they
        are installed into an environment of its own.
        Raises: SettingError for a commit that does not exist or does not have this folder, and for
        dependencies that cannot be installed.
        """
        commit = self.commit(ref, option)
        scratch = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        remove = "rm -rf {}; git -C {} worktree prune"
        removal = Afterwards(remove.format(*map(shlex.quote, (str(scratch), str(self.top)))))
        with contextlib.ExitStack() as stack:
            stack.callback(removal.run)
            tree = scratch / self.top.name
            try:
                _git(self.top, "worktree", "add", "--detach", "--quiet", str(tree), commit)
            except _GitError as error:
                raise SettingError(
                    f"{option}: git could not make a worktree of {ref}: {error}"
                ) from None
            folder = tree / self.folder.relative_to(self.top)
            if not folder.is_dir():
                raise SettingError(
                    f"{option}: at {ref} there is no folder {self.folder.relative_to(self.top)}"
                )
            python = sys.executable
            if own_environment:
                python = environment_for(tree, self.top, scratch / "environment", option, ref)
            yield Place(
                folder=folder,
                python=python,
                modules=tuple(str(tree / each) for each in self._module_folders(tree)),
                about=f"at {ref}",
                original=self.top,
            )

    def elsewhere(self, checkout: Path, option: str) -> Place:
        """The same folder in another checkout, which stays. Raises: SettingError."""
        top = Repository.of(checkout.resolve(), option).top
        folder = top / self.folder.relative_to(self.top)
        if not folder.is_dir():
            raise SettingError(f"{option}: {checkout} has no folder {folder.relative_to(top)}")
        return Place(
            folder=folder,
            modules=tuple(str(top / each) for each in self._module_folders(top)),
            about=f"in {checkout}",
            original=None if top == self.top else self.top,
        )

    def _module_folders(self, tree: Path) -> list[Path]:
        """Folders inside the working tree from which this process imports, if the other has them.

        Such are those of packages installed in editable form: the other side must not import them
        from here.
        """
        places = [Path(place or self.folder) for place in sys.path]
        for finder in sys.meta_path:
            # How setuptools notes editable packages that are in no folder of the module path.
            mapping = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", {})
            places += [Path(place).parent for place in mapping.values()]
        found: list[Path] = []
        for place in [*places, self.top, self.top / "src"]:
            if place.is_relative_to(self.top) and not set(_INSTALLED) & set(place.parts):
                relative = place.relative_to(self.top)
                if (tree / relative).is_dir() and relative not in found:
                    found.append(relative)
        return found


class _GitError(Exception):
    """What git says of a command that failed."""


def _git(folder: Path, *arguments: str) -> str:
    """Run git; returns what it prints."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        env=git.environment(),
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise _GitError(done.stderr.strip())
    return done.stdout.strip()
