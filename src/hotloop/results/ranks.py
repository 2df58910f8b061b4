"""Scripts that `torchrun` starts as several ranks, measured in all of them.

The launcher runs in this process, and starts `hotloop.results.rank` where it would start the
script. Rank 0 measures; its run and the logs of all ranks come back in files.
"""

import dataclasses
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hotloop import errors
from hotloop.benchmark.benchmark import BenchmarkRecord
from hotloop.benchmark.meters import Meters
from hotloop.benchmark.ranks import joined
from hotloop.errors import LoopError, RunError, SettingError, TargetError
from hotloop.loop import run as runs
from hotloop.loop.chosen import Chosen
from hotloop.loop.loop import Loop
from hotloop.loop.ranks.schedule import RankSchedule
from hotloop.loop.run import Run
from hotloop.recognise.patches import Patches
from hotloop.redirect.redirect import Redirect
from hotloop.repeat.afterwards import removed_if_killed
from hotloop.results.rank_files import FOLDER_VARIABLE, Order, RankFiles
from hotloop.results.result import Ending, Result
from hotloop.results.targets import AS_MODULE
from hotloop.simplify.record import Record

R = TypeVar("R", bound=Result[Any])

LAUNCHERS = ("torchrun", f"{AS_MODULE}torch.distributed.run")
RANK_MODULE = "hotloop.results.rank"
# A job in which no rank has begun an iteration for so long hangs; or for so many times as long as
# any iteration before has taken.
PATIENCE_S, PATIENCE = 60.0, 10
LOOK_S = 0.05
# The signals that torch's launcher takes for itself.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# The records of the verbs, for a run of which nothing was measured.
_RECORDS: Mapping[str, type[BenchmarkRecord | Record]] = {
    "benchmark": BenchmarkRecord,
    "simplify": Record,
}


def starts_ranks(target: Loop | str) -> bool:
    """Whether a target is a launcher, which starts a script as several ranks."""
    return target in LAUNCHERS if isinstance(target, str) else False


def expect_one_process(target: Loop | str, option: str) -> None:
    """Refuse what is not done on several ranks. Raises: SettingError."""
    if starts_ranks(target):
        raise SettingError(
            f"{option}: expected a script of one process, got {target}, which starts several "
            "ranks; name the script itself"
        )


def ranks_ending(
    order: Order,
    target: Loop | str,
    arguments: Sequence[str],
    chosen: Chosen | None,
    announce: Any,
    result: type[R],
) -> Ending[R]:
    """Measure a launcher's script on all of its ranks; an error is part of what is returned.

    order: what rank 0 measures. arguments: of the launcher. result: the kind of the result.
    """
    if chosen is not None and (chosen.settings or chosen.levers):
        expect_one_process(target, "--settings-from")
    folder = Path(tempfile.mkdtemp(prefix="hotloop-ranks-"))
    try:
        with removed_if_killed(folder):
            job = _Job(order, RankFiles(folder), announce)
            error = job.run(arguments)
            run = job.measured(str(target), complete=error is None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Ending(result(run), error)


class _Job:
    """One launch of all ranks."""

    def __init__(self, order: Order, files: RankFiles, announce: Any) -> None:
        self._order = order
        self._files = files
        self._announce = announce
        self._ranks = 0
        self._script = ""
        self._hung: str | None = None
        self._facts: dict[str, Any] = {}
        self._meters: Any = None

    def run(self, arguments: Sequence[str]) -> BaseException | None:
        """Start the ranks, and wait until they have ended; return what cut the run short."""
        from torch.distributed import run as torchrun

        self._files.redirected.mkdir()
        self._files.put("order", self._order)
        self._files.put("launcher", os.getpid())
        stopped: BaseException | None = None
        with ExitStack() as stack:
            patches = Patches()
            stack.callback(patches.undo)
            patches.function(torchrun, "config_from_args", self._configuring)
            stack.enter_context(_own_signals())
            stack.enter_context(_environment(FOLDER_VARIABLE, str(self._files.folder)))
            with Redirect(self._files.redirected) as redirect:
                self._facts["redirected"] = redirect.notices
            if self._announce is not None:
                self._announce(redirect.notices)
            meters = stack.enter_context(Meters())
            begin = time.perf_counter()
            try:
                torchrun.run(torchrun.parse_args(list(arguments)))
            except SystemExit as stop:
                stopped = SettingError(f"torchrun exited with {stop.code!r}: see what it has said")
            except (Exception, KeyboardInterrupt) as raised:
                stopped = raised
            meters.read()
            self._meters = meters.samples()
            self._facts["seconds"] = time.perf_counter() - begin
        return self._error(stopped)

    def measured(self, target: str, *, complete: bool) -> Run:
        """The run of rank 0, with what all ranks have logged."""
        try:
            run = runs.load(self._files.run)
        except RunError:
            record = _RECORDS[self._order.verb]()
            settings = dataclasses.asdict(self._order.settings)
            run = Run(self._order.verb, target, settings, record.facts(), record.arrays())
        if self._script:
            run.target = f"{target} {self._script}"
        run.complete = complete and run.complete
        run.facts |= self._facts
        if self._meters is not None:
            run.arrays["meters"] = self._meters
        rows = [self._files.rows(rank) for rank in range(self._ranks)]
        if rows and all(each is not None for each in rows):
            facts, arrays = joined([each for each in rows if each is not None])
            run.facts |= facts
            run.arrays |= arrays
        return run

    # --- starting --------------------------------------------------------------------------------

    def _configuring(self, config_from_args: Any) -> Any:
        """What makes the launcher start ranks that are measured."""

        def configured(args: Any) -> tuple[Any, str, list[str]]:
            if args.log_dir is None:  # else it would make one of its own, and leave it
                args.log_dir = str(self._files.folder / "launcher-logs")
            config, command, arguments = config_from_args(args)
            self._expect(args, config, command)
            self._ranks = config.nproc_per_node
            self._script = Path(args.training_script).name
            # A job that is started again would be measured from the start.
            config.max_restarts = 0
            schedule = self._files.schedule(self._ranks)
            threading.Thread(
                target=self._end_if_hung, args=(schedule,), name="hotloop-ranks", daemon=True
            ).start()
            own = [each for each in arguments if each != "-u"]
            return config, command, ["-u", "-m", RANK_MODULE, *own]

        return configured

    def _expect(self, args: Any, config: Any, command: Any) -> None:
        if config.max_nodes != 1:
            raise SettingError(
                f"--nnodes: expected 1, got {args.nnodes}: ranks are measured on one machine, "
                "whose clock they share"
            )
        if args.no_python or not isinstance(command, str):
            raise TargetError(
                f"{args.training_script}: expected a script of Python's; leave --no-python and "
                "--run-path out"
            )

    # --- ending ----------------------------------------------------------------------------------

    def _end_if_hung(self, schedule: RankSchedule) -> None:
        """End all ranks where none begins an iteration any more; runs on a thread of its own."""
        longest_s, last = 0.0, 0
        while self._files.folder.exists() and not schedule.finished:
            time.sleep(LOOK_S)
            beat = schedule.last_beat_ns()
            if last and beat > last:
                longest_s = max(longest_s, (beat - last) * 1e-9)
            last = beat
            waited_s = (time.monotonic_ns() - beat) * 1e-9
            if beat and waited_s > max(PATIENCE_S, PATIENCE * longest_s) and not schedule.finished:
                reached = ", ".join(
                    f"rank {rank} iteration {schedule.reached(rank)}"
                    for rank in range(schedule.ranks)
                )
                self._hung = (
                    f"no rank began an iteration for {waited_s:.0f} s, so all were ended; "
                    f"reached were {reached}"
                )
                for pid in schedule.pids():
                    _kill(pid)
                break
        schedule.close()

    def _error(self, stopped: BaseException | None) -> BaseException | None:
        """What cut the run short; a rank that failed says more than those that lost it."""
        if self._hung is not None:
            return LoopError(self._hung)
        if isinstance(stopped, SettingError | TargetError):
            return stopped
        if isinstance(stopped, KeyboardInterrupt) or _is_interrupt(stopped):
            return KeyboardInterrupt()
        for rank in [*range(1, self._ranks), 0]:
            failed: tuple[str, str] | None = self._files.get(f"error-{rank}")
            if failed is not None:
                return _as_error(rank, *failed)
        if stopped is not None:
            return LoopError(f"{self._script or 'torchrun'}: {_first_line(stopped)}")
        return None


def _as_error(rank: int, kind: str, message: str) -> BaseException:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.HotloopError):
        return known(message)
    if kind == "KeyboardInterrupt":
        return LoopError(f"rank {rank} was ended from outside")
    return LoopError(f"rank {rank} raised {kind}: {message}")


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether torch's launcher says that it was interrupted, or ended as by an interrupt."""
    return getattr(error, "sigval", None) in (signal.SIGINT, signal.SIGTERM)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip("= ")), repr(error))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


@contextmanager
def _own_signals() -> Iterator[None]:
    """Put back the handlers of signals, which torch's launcher replaces on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
