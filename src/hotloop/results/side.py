"""One side of a comparison: a target that runs block by block, each when it is told to.

`hotloop.repeat.side_process` starts such a process and speaks to it. While the other side runs,
this one waits between two of its iterations and uses no processor.
"""

import importlib.util
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from hotloop.benchmark.warmup import warm_up
from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.chosen import Chosen
from hotloop.loop.conduct import Block, Measurement, Request
from hotloop.loop.control import process_control
from hotloop.loop.lever import Lever, always
from hotloop.loop.loop import Loop
from hotloop.loop.scripts.session import current_session
from hotloop.optimize.libraries import Libraries, set_levers
from hotloop.optimize.same_result import prints_of
from hotloop.repeat.channel import Channel, Closed
from hotloop.repeat.sides import TEST, TRAINING
from hotloop.results.session import patient_start, run_target
from hotloop.results.training_side import run_trainings
from hotloop.results.user_frames import user_frames

Order = Mapping[str, Any]
# The windows that must agree until a side is warm: short, as it is started again and again.
WINDOW_S = 0.1
# A process that uses this much more processor time than its main thread has others that work.
OTHER_THREADS = 1.02


def run_side(channel: Channel) -> None:
    """Take a target from the line, run it as ordered, and say at the end how it ended."""
    try:
        order = channel.receive()
        run = {TEST: _run_test, TRAINING: run_trainings}.get(order["kind"], _run_loop)
        channel.send(run(channel, order))
    except Closed:
        pass


def _run_loop(channel: Channel, order: Mapping[str, Any]) -> dict[str, Any]:
    """Run a loop or a script; returns the last message."""
    with Libraries(order["levers"]) as libraries:
        outcome = run_target(
            order["target"],
            _Obeying(channel, order["original"], libraries=libraries).measure,
            arguments=order["arguments"],
            chosen=Chosen(settings=order["settings"]),
            libraries=libraries,
            start_limits=patient_start,
        )
    error = None if outcome.error is None else _described(outcome.error)
    return {"ended": error, "why": outcome.facts.get("no_iterations")}


def _run_test(channel: Channel, order: Mapping[str, Any]) -> dict[str, Any]:
    """Run a test; returns the last message."""
    if importlib.util.find_spec("pytest") is None:
        return _ended(f"a test needs pytest: {sys.executable} -m pip install pytest")
    from hotloop.results.pytest_side import Call, run_test

    def measure(call: Call) -> None:
        loop = Loop(body=call.body, unit="calls", name=order["target"])
        around = (call.prepare, call.finish) if call.is_surrounded else None
        obeying = _Obeying(channel, order["original"], around)
        outcome = run_target(loop, obeying.measure, start_limits=patient_start)
        if outcome.error is not None:
            raise outcome.error

    return _ended(run_test(order["target"], measure))


def _ended(problem: str | None) -> dict[str, Any]:
    if problem is None:
        return {"ended": None}
    return {"ended": {"type": "", "text": problem, "ours": True, "where": ""}}


class _Obeying:
    """The measurement: it asks the loop for what it was ordered to.

    original: the tree that no module may come from, if there is one. around: what to call before
    and after each iteration, outside of its time. libraries: whose levers may be tried.
    """

    def __init__(
        self,
        channel: Channel,
        original: str | None,
        around: tuple[Callable[[], None], Callable[[], None]] | None = None,
        libraries: Libraries | None = None,
    ) -> None:
        self._channel, self._original = channel, original
        self._around, self._libraries = around, libraries
        self._known: list[Lever] = []
        # An order is known by the first word of it that stands here.
        self._answers: dict[str, Callable[[Arm, Loop, Order], Measurement[dict[str, Any]]]] = {
            "warm_up_s": self._warm_up,
            "compute": self._compute,
            "iterations": self._block,
            "seconds": self._block,
            "levers": self._describe,
            "acting": self._acting,
            "set": self._set,
        }

    def measure(self, loop: Loop) -> Measurement[None]:
        session = current_session()
        marked = session is None or session.mark == "hotloop.iterations"
        # Where a stage marks the iterations, its calls must be seen; else nothing is timed.
        arm = Arm("steady", rest=OFF if marked else REAL)
        try:
            foreign = [] if self._original is None else modules_in(Path(self._original))
            self._channel.send({"unit": loop.unit, "foreign_modules": foreign})
            while (order := self._channel.receive()) and not order.get("end"):
                kind = next(word for word in self._answers if word in order)
                self._channel.send((yield from self._answers[kind](arm, loop, order)))
        except Closed:
            return

    def _warm_up(self, _arm: Arm, _loop: Loop, order: Order) -> Measurement[dict[str, Any]]:
        return (yield from _warmed_up(order["warm_up_s"]))

    def _compute(self, arm: Arm, loop: Loop, order: Order) -> Measurement[dict[str, Any]]:
        """Run so many iterations, within a time if one is given, and say what was computed."""
        block = yield Request(
            arm,
            iterations=order["compute"],
            seconds=order.get("seconds"),
            phase="comparing results",
        )
        return {"prints": prints_of(loop), "iterations": len(block.duration_ns)}

    def _describe(self, _arm: Arm, loop: Loop, _order: Order) -> Measurement[dict[str, Any]]:
        """Say which levers there are; what they do cannot be sent."""
        yield from ()
        levers, where = self._levers(loop, anew=True), self._libraries
        said = [
            _lever_said(each)
            | {"where": where.where(each), "now": where.now(each)}
            | {"always": each.applies is always}
            for each in levers
            if where
        ]
        return {"levers": said}

    def _set(self, _arm: Arm, loop: Loop, order: Order) -> Measurement[dict[str, Any]]:
        """Set levers; an error is that of the option, and the loop goes on without it."""
        yield from ()
        problem = None
        try:
            known = {lever.name for lever in self._levers(loop)}
            set_levers(self._levers(loop, anew=not known >= set(order["set"])), order["set"])
        except MemoryError as error:
            problem = f"it needs more memory than there is ({error})"
        except Exception as error:
            problem = f"setting it raised {type(error).__name__}: {error}"
        return {"problem": problem}

    def _acting(self, _arm: Arm, loop: Loop, order: Order) -> Measurement[dict[str, Any]]:
        """Say which levers act with some options."""
        yield from ()
        options = order["acting"]
        return {"acting": [each.name for each in self._levers(loop) if each.applies(options)]}

    def _levers(self, loop: Loop, *, anew: bool = False) -> list[Lever]:
        """The levers, as they were when they were looked for; that takes up to half a second."""
        if self._libraries is not None and (anew or not self._known):
            self._known = self._libraries.levers(loop)
        return self._known

    def _block(self, arm: Arm, _loop: Loop, order: Order) -> Measurement[dict[str, Any]]:
        count, drain = order.get("iterations"), order.get("drain", 0)
        if self._around is None:
            seconds = order.get("seconds")
            block = yield Request(
                arm, iterations=count, seconds=seconds, drain=drain, phase="steady state"
            )
            return _numbers(block) | {"longest_ns": max(block.duration_ns)}
        assert count is not None
        before, after = self._around
        total: Counter[str] = Counter()
        for number in range(drain + count):
            before()
            block = yield Request(arm, iterations=1, phase="steady state")
            after()
            if number >= drain:
                total.update(_numbers(block))
        return dict(total)


def modules_in(tree: Path) -> list[str]:
    """The loaded modules that come from a working tree, other than packages installed there."""
    found = []
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        parts = Path(place).parts if isinstance(place, str) else ()
        if parts[: len(tree.parts)] == tree.parts and "site-packages" not in parts:
            found.append(name)
    return sorted(found)


def _warmed_up(limit_s: float) -> Measurement[dict[str, Any]]:
    """Warm up; returns how long an iteration takes, and whether one thread does all of it."""
    clock = process_control().clock
    thread_ns, process_ns = clock.thread_cpu_ns(), clock.process_cpu_ns()
    found = yield from warm_up(clock.now_ns, limit_s, WINDOW_S)
    thread_ns, process_ns = clock.thread_cpu_ns() - thread_ns, clock.process_cpu_ns() - process_ns
    alone = process_ns < OTHER_THREADS * thread_ns and not psutil.Process().children()
    return {"iterations": found.iterations, "ns": found.ns_per_iteration, "one_thread": alone}


def _lever_said(lever: Lever) -> dict[str, Any]:
    """What the other end needs to know of a lever."""
    names = ("name", "options", "now", "keeps_result", "about", "area", "stages", "risk", "missing")
    return {name: getattr(lever, name) for name in names}


def _numbers(block: Block) -> dict[str, float]:
    return {
        "iterations": len(block.duration_ns),
        "units": sum(block.units),
        "wall_ns": block.wall_ns,
        "cpu_ns": block.cpu_ns,
        "process_cpu_ns": block.process_cpu_ns,
        "stolen_ns": block.stolen_ns,
        "switches": block.switches,
        "waits": block.waits,
        "pressure_us": block.pressure_us,
    }


def _described(error: BaseException) -> Mapping[str, Any]:
    """What a message needs of an error: its type, its text, and where in the user's code."""
    return {
        "type": type(error).__name__,
        "text": str(error),
        "ours": type(error).__module__.startswith("hotloop."),
        "where": "".join(traceback.format_list(user_frames(error))),
    }
