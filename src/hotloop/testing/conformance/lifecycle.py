"""Checks of envs and vector envs alike: pickled, misused, closed."""

import os
import subprocess
import sys
import threading
import time
from typing import Any

import cloudpickle
import psutil

from hotloop.testing.conformance.subject import Broken, Check, Subject, Undecided, raised

# How long a thread or process may take to end after close().
GRACE_S = 2.0
STARTING = "starting"


def _can_be_pickled(subject: Subject[Any]) -> None:
    try:
        cloudpickle.loads(cloudpickle.dumps(subject.make))
    except Exception as error:
        raise Broken(raised(error)) from error


def _survives_misuse(subject: Subject[Any]) -> None:
    if not subject.settings.misuse:
        raise Undecided("not asked for (misuse=False)")
    payload = cloudpickle.dumps((subject.make, subject.settings.max_steps, subject.settings.seed))
    # By module name: what the maker names must be found in the child as it is here.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    try:
        child = subprocess.run(
            [sys.executable, "-m", "hotloop.testing.conformance.misuse"],
            input=payload,
            env=environment,
            capture_output=True,
            timeout=subject.settings.timeout_s,
        )
    except subprocess.TimeoutExpired as expired:
        doing = _last_phase(expired.stdout or b"")
        raise Broken(f"{doing}: no end within {subject.settings.timeout_s:g} s") from expired
    if child.returncode != 0:
        last = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said = f" ({last[0]})" if last else ""
        doing = _last_phase(child.stdout)
        if doing == STARTING and child.returncode == 1:
            raise Undecided(f"the maker cannot be called in a new process{said}")
        raise Broken(f"{doing}: the process died, exit code {child.returncode}{said}")


def _last_phase(output: bytes) -> str:
    phases = [line for line in output.decode(errors="replace").splitlines() if "phase: " in line]
    return phases[-1].split("phase: ")[1] if phases else STARTING


def _can_be_closed_twice(subject: Subject[Any]) -> None:
    env = subject.make()
    env.reset(seed=subject.settings.seed)
    for time_word in ("first", "second"):
        try:
            env.close()
        except Exception as error:
            raise Broken(f"the {time_word} close() raised {raised(error)}") from error


def _leaves_nothing_behind(subject: Subject[Any]) -> None:
    threads = set(threading.enumerate())
    children = set(psutil.Process().children(recursive=True))
    env = subject.make()
    env.reset(seed=subject.settings.seed)
    env.step(subject.actions(1)[0])
    env.close()
    deadline = time.monotonic() + GRACE_S
    while left := _left(threads, children):
        if time.monotonic() > deadline:
            raise Broken(f"{GRACE_S:g} s after close() there are still {', '.join(left)}")
        time.sleep(0.01)


def _left(threads: set[threading.Thread], children: set[psutil.Process]) -> list[str]:
    left = [f"thread {thread.name!r}" for thread in set(threading.enumerate()) - threads]
    for child in set(psutil.Process().children(recursive=True)) - children:
        try:
            command = " ".join(child.cmdline())
            ended = child.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            continue
        # Python's own helpers, one per interpreter, stay until it ends.
        helper = "resource_tracker" in command or "forkserver" in command
        if not ended and not helper:
            left.append(f"process {child.pid} ({command[:60]})")
    return left


def _render_modes_are_declared(subject: Subject[Any]) -> None:
    modes = subject.env.metadata.get("render_modes", [])
    if not isinstance(modes, list | tuple) or not all(isinstance(mode, str) for mode in modes):
        raise Broken(f"metadata['render_modes'] is {modes!r}")
    mode = subject.env.render_mode
    if mode is not None and mode not in modes:
        raise Broken(f"render_mode is {mode!r}, metadata['render_modes'] is {modes!r}")


PICKLE: Check[Any] = Check(
    "pickle",
    "the maker can be pickled, to be called in a worker",
    "let the maker hold settings, not open files, locks or the env itself",
    _can_be_pickled,
    only_warns=True,
)
RENDER_MODES: Check[Any] = Check(
    "render_modes",
    "metadata['render_modes'] lists the modes, and render_mode is None or one of them",
    "declare the modes in the class's metadata",
    _render_modes_are_declared,
)
LIFECYCLE: tuple[Check[Any], ...] = (
    Check(
        "misuse",
        "a step before the reset or after the end may raise; it does not crash or hang",
        "raise gymnasium.error.ResetNeeded there",
        _survives_misuse,
        needs=("pickle", "runs"),
    ),
    Check(
        "close",
        "close() can be called twice",
        "let close() return when there is nothing left to close",
        _can_be_closed_twice,
        needs=("runs",),
    ),
    Check(
        "leaks",
        "close() leaves no thread and no process",
        "stop and join in close() what the env started",
        _leaves_nothing_behind,
        needs=("runs", "close"),
    ),
)
