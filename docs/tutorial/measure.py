"""Everything that the tutorial shows, measured anew, in the order of the page.

    python docs/tutorial/measure.py

A repository of its own is made in a temporary folder, from `train.py`, `updates.py` and `rover.py`.
What each command prints is kept beside this file, as `NUMBER_VERB.txt`. It takes ten minutes or
more.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
GIT = ["git", "-c", "user.name=tutorial", "-c", "user.email=tutorial@example.org"]
WIDTH = "110"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for script in ("train.py", "updates.py", "rover.py"):
            shutil.copy(HERE / script, folder)
        (folder / ".gitignore").write_text(".hotloop/\n__pycache__/\n")
        commit(folder, "as it was")
        show(folder, "1_benchmark", "hotloop benchmark train.py")
        show(folder, "2_simplify", "hotloop simplify train.py --budget 120")
        show(folder, "3_optimize", "hotloop optimize train.py --budget 60")
        look_along_all_beams(folder / "rover.py")
        words = 'hotloop repeat try "all beams at once" --before HEAD --predicted 70%'
        show(folder, "4_try", f"{words} --target updates.py --budget 480")
        commit(folder, "all beams at once")
        show(folder, "5_simplify", "hotloop simplify train.py --budget 120")
        use_workers(folder / "train.py")
        words = 'hotloop repeat try "envs in worker processes" --before HEAD --predicted 10%'
        show(folder, "6_try", f"{words} --target updates.py --budget 480")
        subprocess.run([*GIT, "checkout", "-q", "train.py"], cwd=folder, check=True)
        show(folder, "7_benchmark", "hotloop benchmark updates.py")
        show(folder, "8_repeat", "hotloop repeat --target-rate 1000")


def commit(folder: Path, message: str) -> None:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", message]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)


def look_along_all_beams(rover: Path) -> None:
    """The first change: the beams in one expression of NumPy instead of two loops."""
    before = rover.read_text().partition("    def _look")[0]
    rover.write_text(before + (HERE / "rover_all_beams.py").read_text())


def use_workers(train: Path) -> None:
    """The second change: the envs step in worker processes."""
    text = train.read_text()
    text = text.replace("import gymnasium\n", "import hotloop\n")
    old = "gymnasium.vector.SyncVectorEnv([Rover] * ENVS)"
    train.write_text(text.replace(old, 'hotloop.make_vec(Rover, ENVS, backend="process")'))


def show(folder: Path, name: str, command: str) -> None:
    """Run a command, and keep what it prints."""
    print(f"$ {command}", flush=True)
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=os.environ | {"PATH": programs, "COLUMNS": WIDTH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = done.stdout.replace(tempfile.gettempdir(), "TMP")
    lines = [line.rstrip() for line in printed.splitlines()]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(done.stdout, flush=True)


if __name__ == "__main__":
    main()
