"""Choices that change learning: each turn is a whole training, judged by its time to the target."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotloop.loop.chosen import Chosen
from hotloop.optimize.search import TrialError
from hotloop.optimize.space import Choice, Space
from hotloop.repeat.afterwards import Afterwards
from hotloop.repeat.side_process import last_lines
from hotloop.repeat.sides import Side

PATIENCE = 2.0  # a training may take so many times what the trainings of the start have taken
LEAST_S = 1.0  # that any training may take
UNSOLVED = 2.0  # one that is not solved counts as so many times the time that it had
_GRACE_S = 60.0  # beside the training: imports, evaluation, the end
_NOT_SOLVED = 1  # how `hotloop train` exits then


class TrainingBench:
    """Trains choices, all of a round from the same seed.

    side_of: the target of a choice with its settings. limit_s: of the trainings of the start, as
    long as none has ended.
    """

    places = 4
    same_work = True
    usual_noise = 0.4  # over seeds
    warm_rounds, final_rounds = 2, 4  # a turn takes seconds to minutes
    unchecked = "they change learning; what counts is how soon the target is reached"

    def __init__(
        self, space: Space, side_of: Callable[[Choice], Side], limit_s: float, seed: int
    ) -> None:
        self.space = space
        self._side_of = side_of
        self._limit_s = limit_s
        self._start_s: list[float] = []  # what trainings with the settings at the start have taken
        self._seed = 1000 * (seed + 1)  # apart from those that settings are judged with

    def open(self, choice: Choice, *, checked: bool = False) -> "Training":  # noqa: ARG002
        """Make a choice ready; nothing runs before its first turn."""
        return Training(self, self._side_of(choice), choice == self.space.start)

    def next_round(self) -> None:
        """The turns of a round have a seed of their own."""
        self._seed += 1

    def train(self, side: Side, *, is_start: bool) -> float:
        """Train once. Returns 1 over the seconds to the target. Raises: TrialError.

        is_start: whether these are the settings at the start, which tell how long others may take.
        """
        limit_s = self._limit_s
        if self._start_s and not is_start:
            limit_s = max(PATIENCE * statistics.mean(self._start_s), LEAST_S)
        with tempfile.TemporaryDirectory(prefix="hotloop-optimize-") as folder:
            place = Path(folder)
            target, chosen = side.words[0], place / "chosen.yaml"
            Chosen(target, side.settings, side.levers).write(chosen)
            found = _trained(
                [
                    *(side.place.python, "-m", "hotloop.cli.main", "train", target),
                    *("--settings-from", str(chosen)),
                    *("--seed", str(self._seed), "--time-limit", str(limit_s), "--json"),
                    *("--checkpoint", str(place / "one.checkpoint"), "--checkpoint-every", "0"),
                    *("--save", str(place / "one.run")),
                ],
                limit_s * 4 + _GRACE_S,
            )
        solved_s = found["seconds_to_solve"]
        seconds = UNSOLVED * limit_s if solved_s is None else float(solved_s)
        if is_start:
            self._start_s.append(seconds)
        return 1 / seconds


@dataclass(frozen=True)
class Training:
    """A choice that can be trained."""

    bench: TrainingBench
    side: Side
    is_start: bool

    def turn(self) -> float:
        """1 over the seconds to the target, of one training. Raises: TrialError."""
        return self.bench.train(self.side, is_start=self.is_start)

    def close(self) -> None:
        """Nothing is held."""


def _trained(command: list[str], limit_s: float) -> dict[str, Any]:
    """Run a training to its end; nothing of it is left behind.

    Raises: TrialError if it fails, or takes longer than `limit_s` seconds in all.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    if_we_are_killed = Afterwards(f"kill -KILL -- -{process.pid}")
    try:
        out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise TrialError(f"a training did not end within {limit_s:.0f} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if_we_are_killed.forget()
    if process.returncode not in (0, _NOT_SOLVED) or not out.strip():
        raise TrialError(f"a training exited with {process.returncode}{last_lines(errors)}")
    found: dict[str, Any] = json.loads(out)
    if found["seconds_to_solve"] is None and found["threshold"] is None:
        raise TrialError("the env names no target: give target_return=NUMBER")
    return found
