"""An environment for a version that declares other dependencies than the one installed here."""

import contextlib
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.errors import SettingError

_REQUIREMENTS, _CONSTRAINTS = "requirements*.txt", "constraints*.txt"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHOWN_LINES = 4


def environment_for(tree: Path, current: Path, into: Path, option: str, ref: str) -> str:
    """The interpreter for a tree: this one, or where the tree declares other dependencies, a new
    one in the folder `into`.

    The new environment lies on top of this one: what the tree asks for in another version is
    installed there, everything else is found here.
    Raises: SettingError if something cannot be installed.
    """
    wanted, here = _declared(tree), _declared(current)
    requirements = sorted(wanted.requirements - here.requirements)
    other = [name for name, text in wanted.files.items() if text != here.files.get(name)]
    lists = [each for name in other if _is_list(name) for each in ("-r", str(tree / name))]
    constraints = [
        each for name in wanted.files if not _is_list(name) for each in ("-c", str(tree / name))
    ]
    if not requirements and not lists:
        return sys.executable
    python = _made(into)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, *constraints, *lists, *requirements],
        cwd=tree,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        said = "".join(f"\n  {line}" for line in done.stderr.strip().splitlines()[-_SHOWN_LINES:])
        raise SettingError(
            f"{option}: {ref} declares other dependencies, and they could not be installed. "
            "--shared-environment runs it with what is installed here. pip said:" + said
        )
    return str(python)


@dataclass(frozen=True)
class _Declared:
    """What a tree asks for: files that pip reads, by name, and requirements of its project."""

    files: Mapping[str, str]
    requirements: frozenset[str]


def _declared(tree: Path) -> _Declared:
    """Read what a tree asks for. Of the optional requirements those count that are installed."""
    files = {
        path.name: path.read_text()
        for pattern in (_REQUIREMENTS, _CONSTRAINTS)
        for path in sorted(tree.glob(pattern))
    }
    project: dict[str, Any] = {}
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError):
        project = tomllib.loads((tree / "pyproject.toml").read_text()).get("project", {})
    needed = set(project.get("dependencies", []))
    for group in project.get("optional-dependencies", {}).values():
        needed |= {each for each in group if _is_installed(each)}
    return _Declared(files, frozenset(needed))


def _is_list(name: str) -> bool:
    return name.startswith("requirements")


def _is_installed(requirement: str) -> bool:
    name = _NAME.match(requirement)
    try:
        importlib.metadata.version(name.group() if name else "")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return True


def _made(into: Path) -> Path:
    """Make an environment that also finds what is installed in this one."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(into)], check=True, capture_output=True
    )
    python = into / "bin" / "python"
    (packages,) = into.glob("lib/python*/site-packages")
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # Lines of such a file are added to the module path, behind the environment's own packages;
    # `site` also reads the files of that kind that lie there, as those of editable packages.
    lines = [f"import site; site.addsitedir({place!r})" for place in sorted(here)]
    (packages / "below.pth").write_text("\n".join(lines) + "\n")
    return python
