"""One rank of a job under measurement: `python -m hotloop.results.rank [-m] SCRIPT ARGUMENT…`.

`torchrun` starts it in place of the script. Rank 0 measures, the others follow it.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from hotloop.errors import HotloopError, LoopError, SettingError
from hotloop.loop.conduct import Measurement
from hotloop.loop.control import leave_inherited_control, process_control
from hotloop.loop.lifetime import kill_with_parent
from hotloop.loop.loop import Loop
from hotloop.loop.ranks.lead import LeadRank
from hotloop.loop.ranks.schedule import RankSchedule
from hotloop.loop.scripts.session import Session, drive_script
from hotloop.recognise.rank_iterations import FollowedIterations
from hotloop.recognise.rank_log import RankLog
from hotloop.recognise.recognition import Recognition
from hotloop.recognise.settings import RecogniseSettings
from hotloop.redirect.redirect import Redirect
from hotloop.results.benchmark import measure_benchmark
from hotloop.results.mentions import mentions
from hotloop.results.rank_files import Order, RankFiles
from hotloop.results.result import Ending
from hotloop.results.session import AsRank
from hotloop.results.simplify import measure_simplify
from hotloop.results.targets import AS_MODULE, resolve, search_path

MEASURES: Mapping[str, Callable[..., Ending[Any]]] = {
    "benchmark": measure_benchmark,
    "simplify": measure_simplify,
}
# The verbs that replace calls, which all ranks must do together.
IN_STEP = ("simplify",)
WATCH_S = 0.02
# The system's own: while a script runs, `os._exit` ends only that.
_end_at_once = os._exit
# So long rank 0 waits for the others to end once it has measured.
ENDING_S = 10.0


def main(arguments: list[str]) -> None:
    """Run a script as one rank; ends the process."""
    kill_with_parent()
    leave_inherited_control()
    files = RankFiles.of_this_process()
    parent: int = files.get("launcher")
    if os.getppid() != parent:
        _exit(1)  # the launcher ended before the kernel was asked
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    by_module = arguments[:1] == ["-m"]
    target = AS_MODULE + arguments[1] if by_module else arguments[0]
    passed_on = arguments[2:] if by_module else arguments[1:]
    order: Order = files.get("order")
    schedule = files.schedule(ranks)
    schedule.join(rank)
    try:
        _expect_no_stages(target)
        if rank == 0:
            _measure(order, files, schedule, target, passed_on, parent)
        else:
            _follow(order, files, schedule, target, passed_on, rank, parent)
    except BaseException as error:
        files.put(f"error-{rank}", _described(error))
        if not isinstance(error, HotloopError):
            traceback.print_exc()
        _exit(1)
    schedule.end(rank)
    _exit(0)


def _expect_no_stages(target: str) -> None:
    script = resolve(target)
    assert not isinstance(script, Loop)
    used = mentions(script.path, search_path())
    if used.stages or used.iterations:
        raise SettingError(
            f"{script.name}: a script with hotloop.stage or hotloop.iterations cannot be measured "
            "on several ranks; expected a script without them, whose parts are recognised"
        )


def _measure(
    order: Order,
    files: RankFiles,
    schedule: RankSchedule,
    target: str,
    arguments: list[str],
    parent: int,
) -> None:
    """Measure as rank 0, then let the others end."""
    logs: list[RankLog] = []

    def log(recognition: Recognition) -> RankLog:
        logs.append(RankLog(recognition))
        return logs[-1]

    _watch(lambda: os.getppid() != parent, lambda: _exit(1))
    # The launcher ends its ranks so; what was measured by then is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    lead = LeadRank(schedule, process_control())
    ending = MEASURES[order.verb](
        target,
        order.settings,
        arguments=arguments,
        recognise=order.recognise,
        as_rank=AsRank(lead, files.redirected, log, order.verb in IN_STEP),
        whole_process=True,
        **order.limits,
    )
    schedule.finish()
    ending.result.run.save(files.run)
    for each in logs:
        each.save(files.log(0))
    if ending.error is not None:
        files.put("error-0", _described(ending.error))
        if not isinstance(ending.error, HotloopError | KeyboardInterrupt):
            traceback.print_exception(ending.error)
    _await_end(schedule)


def _await_end(schedule: RankSchedule) -> None:
    """Wait for the other ranks: they would lose their connections to this one."""
    until = time.monotonic() + ENDING_S
    others = range(1, schedule.ranks)
    while time.monotonic() < until and not all(schedule.ended(rank) for rank in others):
        time.sleep(WATCH_S)


def _follow(
    order: Order,
    files: RankFiles,
    schedule: RankSchedule,
    target: str,
    arguments: list[str],
    rank: int,
    parent: int,
) -> None:
    """Run the script as rank 0 wants it, until that one has measured."""
    script = resolve(target)
    assert not isinstance(script, Loop)
    control = process_control()
    settings = order.recognise or RecogniseSettings()
    with (
        Redirect(files.redirected) as redirect,
        Recognition(control, settings.stage, may_go_on=settings.may_go_on) as recognition,
    ):
        recognition.folder = redirect.folder
        log = RankLog(recognition)

        def end() -> None:
            log.save(files.log(rank))
            schedule.end(rank)
            _exit(0)

        _watch(lambda: schedule.finished, end)
        _watch(lambda: os.getppid() != parent, lambda: _exit(1))
        marks = FollowedIterations(schedule, rank, recognition, log)
        session = Session(
            script, control, _nothing, marks=marks, decorators=recognition.main_stages()
        )
        try:
            drive_script(session, arguments)
        except BaseException:
            # Rank 0 has what it needs, and its connections are closed.
            if schedule.finished:
                end()
            raise
        log.save(files.log(rank))


def _nothing(loop: Loop) -> Measurement[None]:
    raise LoopError(f"{loop.name}: this rank measures nothing")


def _watch(is_over: Callable[[], bool], call: Callable[[], None]) -> None:
    """Call once something is over, on a thread of its own: the script may wait for ever."""

    def watch() -> None:
        while not is_over():
            time.sleep(WATCH_S)
        call()

    threading.Thread(target=watch, name="hotloop-rank", daemon=True).start()


def _described(error: BaseException) -> tuple[str, str]:
    """The name of an error's type, and what it says."""
    notes = getattr(error, "__notes__", ())
    return type(error).__name__, ". ".join([str(error), *notes])


def _exit(code: int) -> None:
    """End at once: what other ranks are waited for with never ends by itself."""
    sys.stdout.flush()
    sys.stderr.flush()
    _end_at_once(code)


if __name__ == "__main__":
    main(sys.argv[1:])
