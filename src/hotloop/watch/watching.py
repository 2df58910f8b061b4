"""`hotloop.watch()`: the context in which a training is watched."""

import logging
import os
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hotloop.errors import HotloopError, LoopError
from hotloop.loop.alone import measuring_alone
from hotloop.loop.run import Run
from hotloop.loop.scripts.session import current_session
from hotloop.loop.sinks import Sinks, open_sinks
from hotloop.loop.target import settings_of
from hotloop.recognise.recognition import Recognition
from hotloop.simplify.watched import WatchRecord, WatchSummary, summarize_watch
from hotloop.watch.lines import Line, Terminal, write_scalars
from hotloop.watch.sampler import Sampler
from hotloop.watch.settings import WatchSettings
from hotloop.watch.windows import Delays, recent_shares

_LOG = logging.getLogger("hotloop")
# So long the alarm of a watch rests at most.
LONGEST_S = 0.5


def watch(**settings: Any) -> "Watch":
    """Watch a training that goes on, as a context around it.

    The settings are the fields of `WatchSettings`. Raises: SettingError for one that is unknown or
    out of range.
    """
    return Watch(settings_of(WatchSettings, settings))


class Watch:
    """A context in which a training is watched: its rates, and the time of its stages.

    Nothing that the training does is replaced, and all that was put around the functions of
    libraries is gone afterwards, also after an error. It watches the thread that enters it.
    """

    def __init__(self, settings: WatchSettings | None = None) -> None:
        self.settings = settings or WatchSettings()
        self.record = WatchRecord()
        self._stack: ExitStack | None = None
        self._sinks: Sinks | None = None
        self._terminal = Terminal(self.settings.terminal)
        self._complete = True

    def __enter__(self) -> Self:
        """Begin. Raises: LoopError within another watch or measurement; SettingError; RunError.

        In a script that a verb measures, nothing is watched or saved: two would change each other.
        """
        if self._stack is not None:
            raise LoopError("a watch is entered once; make another one with hotloop.watch()")
        self._pid = os.getpid()
        if current_session() is not None:
            self._stack, self._ended = ExitStack(), True
            self.record.why_not = "the script is being measured, so this watch is off"
            self._terminal.say(self.record.why_not)
            return self
        with ExitStack() as stack:
            control = stack.enter_context(measuring_alone())
            self._sinks = open_sinks(
                self.settings.tensorboard, self.settings.wandb, name=self._name, prefix=""
            )
            if self._sinks is not None:
                stack.callback(self._sinks.close)
            self._save()  # where it cannot be saved, that is said before the training
            self._recognition = stack.enter_context(Recognition(control, keeps_objects=False))
            control.drain_events()
            record = self.record.sampled
            record.dropped_before = control.workers.dropped_events
            delays = Delays(self.settings.delay_share) if self.settings.causal else None
            self._now = control.clock.now_ns
            self._sampler = Sampler(
                self._recognition,
                self.record,
                name=self._name,
                every_s=self.settings.every_s,
                delays=delays,
                on_found=self._found,
                on_line=self._line,
            )
            stack.callback(self._sampler.stop)
            control.watcher = self._sampler.called
            alarm = _Alarm(self._sampler, self.settings.every_s)
            stack.callback(alarm.end)
            alarm.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """End: put everything back, say how it went, and save the run. Idempotent."""
        stack, self._stack = self._stack, ExitStack()
        if stack is None:
            return
        self._complete = self._complete and error is None
        with stack:
            if os.getpid() != self._pid or self._ended:
                return  # a forked child has a copy of a watch that is not its own
            self._ended = True
            self._sampler.stop()
            self._line()
            self._terminal.say(self._last_words())
            self._write_final()
        try:
            self._save()
        except HotloopError as problem:  # what comes after the training must not be lost for it
            _LOG.warning("%s", problem)

    _ended = False

    @property
    def run(self) -> Run:
        """The run of what was seen so far, as it is saved."""
        settings = asdict(self.settings)
        return Run(
            verb="watch",
            target=self._name,
            settings={k: str(v) if isinstance(v, Path) else v for k, v in settings.items()},
            facts=self.record.facts(),
            arrays=self.record.arrays(),
            complete=self._complete,
        )

    @property
    def summary(self) -> WatchSummary:
        """The figures of what was seen so far."""
        return summarize_watch(self.run)

    @property
    def _name(self) -> str:
        return self.settings.name or Path(sys.argv[0] if sys.argv else "").name or "training"

    def _found(self, mark: str) -> None:
        self._terminal.say(f"an iteration is {mark}")
        self._begin_period()

    def _begin_period(self) -> None:
        self._period_ns, self._period_iterations = self._now(), self._sampler.iterations
        self._period_block = len(self.record.sampled.stage_ns)

    def _line(self) -> None:
        """Note the period that ends now, and show it."""
        if self.record.iteration is None:
            return
        seconds = (self._now() - self._period_ns) * 1e-9
        iterations = self._sampler.iterations - self._period_iterations
        if iterations <= 0 or seconds <= 0:
            return
        units = iterations * self._sampler.units_per_iteration
        self.record.periods.append((seconds, iterations, units))
        line = Line(
            self.record.unit,
            sum(period[2] for period in self.record.periods),
            units / seconds,
            iterations / seconds,
            recent_shares(self.record, self._period_block),
        )
        inside, before = self._recognition.inside, self._recognition.inside.now
        inside.now = True  # what is written here is no call of the training
        try:
            self._terminal.say(line)
            if self._sinks is not None:
                delays = summarize_watch(self.run).delays if self.record.pairs else []
                write_scalars(self._sinks, line, delays)
        finally:
            inside.now = before
        self._begin_period()

    def _last_words(self) -> str:
        if self.record.iteration is None:
            return f"nothing was measured: {self.record.why_not}"
        counted = self._sampler.iterations
        saved = f"; `hotloop report {self.settings.run}`" if self.settings.run else ""
        return f"watched {counted:,.0f} iterations{saved}"

    def _write_final(self) -> None:
        """Give the figures of the whole watch to where the lines went."""
        if self._sinks is None or self.record.iteration is None:
            return
        # Here, as it loads all reports, which a training need not wait for.
        from hotloop.report.kinds import kind_of

        run = self.run
        kind = kind_of(run)
        metrics = kind.metrics(kind.summarize(run), run)
        units = sum(period[2] for period in self.record.periods)
        self._sinks.final({name: each.value for name, each in metrics.items()}, round(units))

    def _save(self) -> None:
        if self.settings.run is not None:
            self.run.save(Path(self.settings.run))


class _Alarm(threading.Thread):
    """Looks after what is due, so that the training's own thread need not look at a clock."""

    def __init__(self, sampler: Sampler, every_s: float) -> None:
        super().__init__(name="hotloop-watch", daemon=True)
        self._sampler, self._longest_s = sampler, min(every_s, LONGEST_S)
        self._end = threading.Event()

    def run(self) -> None:
        """Look after it until the watch ends."""
        while not self._end.wait(self._sampler.due_in_s(self._longest_s)):
            self._sampler.look_after()

    def end(self) -> None:
        """Look no more, and wait for the last time to be over."""
        self._end.set()
        if self.is_alive():
            self.join()
