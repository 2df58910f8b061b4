"""Choices that run in processes of their own, one at a time: what crashes one leaves the others."""

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hotloop.loop.lever import Lever, Option, Options, always, same_option
from hotloop.optimize.bench import LoopEnded, Stretch, TrialError
from hotloop.optimize.guarded_process import GuardedProcess
from hotloop.optimize.libraries import LIVE, SETTING
from hotloop.optimize.same_result import CHECK_ITERATIONS, Print, difference, unlike
from hotloop.optimize.space import Choice, Space, keyed
from hotloop.repeat.estimate import own_ns
from hotloop.repeat.sides import Side

TURN_S = 0.25  # about
WARM_UP_S = 1.5  # at most, where an iteration is not longer
CHECK_S = 2.0  # for so long results are compared, and for one iteration at least
# Another choice than the start may take so many times what the start has taken at most for anything
# that it was asked, and so long besides; then it hangs, or is no choice for anybody.
PATIENCE, GRACE_S = 3.0, 5.0


class Trial:
    """A process that runs the target with some options.

    check: after how many iterations its result is read; None: after as many as fit in `CHECK_S`,
    0: it is not read. unit: what it counts. checked: after how many iterations its result was read;
    prints: what it was.
    Raises: TrialError.
    """

    def __init__(self, process: GuardedProcess, *, check: int | None = 0) -> None:
        self.unit = "iterations"
        self.prints: list[Print] = []
        self._process = process
        self._ahead = 0  # iterations whose work may be done already
        self.ask, self.close = self._process.ask, self._process.close
        try:
            self.unit = self._process.begin()["unit"]
            self.checked = 0
            if check != 0:
                order = {"compute": check or CHECK_ITERATIONS}
                found = self.ask(order if check else {**order, "seconds": CHECK_S})
                self.prints, self.checked = found["prints"], found["iterations"]
            begin = time.monotonic()
            warm = self.ask({"warm_up_s": WARM_UP_S})
            # What a process did before it was stopped is out of its caches; only short ones see it.
            self._drain = int(warm["ns"] * 1e-9 < TURN_S / 10)
            # Where others of its own are at work too, they are what the main thread waits for.
            self._alone = bool(warm["one_thread"])
            # All turns have so many iterations: of turns that end at a time, those with a long
            # iteration would be longer, and count too little.
            self._iteration_s = (time.monotonic() - begin) / max(warm["iterations"], 1)
            self._iterations = max(1, round(TURN_S / self._iteration_s))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether its process can still do something."""
        return self._process.alive

    @property
    def longest_s(self) -> float:
        """What it has taken at most for anything so far."""
        return self._process.longest_s

    def set(self, options: Mapping[str, Option]) -> None:
        """Set levers. Raises: TrialError."""
        begin = time.monotonic()
        problem = self.ask({"set": dict(options)})["problem"]
        if problem is not None:
            raise TrialError(problem)
        # What works beside the main thread has worked ahead meanwhile: not in the next turn's time.
        self._ahead = math.ceil((time.monotonic() - begin) / self._iteration_s)

    def turn(self, stretch: Stretch) -> float:
        """Units a second over a turn, which is added to a stretch. Raises: TrialError."""
        drain, self._ahead = self._drain + self._ahead, 0
        block = self.ask({"iterations": self._iterations, "drain": drain})
        stretch.add(block["iterations"], block["wall_ns"], block["longest_ns"])
        columns = {name: np.array(value) for name, value in block.items()}
        turn_ns = float(own_ns(columns)) if self._alone else block["wall_ns"]
        return float(block["units"] / (turn_ns * 1e-9))


class Host:
    """A process that several choices run in, in turns; it is started again where one has ended it.

    start: starts it. made: the options that its levers have then. users: how many choices run in
    it.
    """

    def __init__(
        self, start: Callable[[], Trial], made: Mapping[str, Option] | None = None
    ) -> None:
        self.users = 0
        self.made = dict(made or {})
        self._start = start
        self._trial: Trial | None = None
        self._set_to: dict[str, Option] = {}
        self._turns = 0  # of the process that runs

    def holds(self, options: Mapping[str, Option]) -> None:
        """Note what its levers are set to whenever it starts, and are now."""
        self.made, self._set_to = dict(options), dict(options)

    def running(self) -> Trial:
        """Its process. Raises: TrialError if it does not start."""
        if self._trial is None:
            self._trial = self._start()
            self._set_to = dict(self.made)
            self._turns = 0
        return self._trial

    def turn(self, options: Mapping[str, Option], stretch: Stretch) -> float:
        """Units a second over a turn with these options. Raises: TrialError.

        A loop that ends meanwhile is begun anew, unless it does not last for one turn.
        """
        try:
            return self._turn(options, stretch)
        except LoopEnded:
            if not self._turns:
                raise
        return self._turn(options, stretch)

    def _turn(self, options: Mapping[str, Option], stretch: Stretch) -> float:
        trial = self.running()
        try:
            before = self._set_to
            changed = {
                name: option
                for name, option in options.items()
                if name not in before or not same_option(before[name], option)
            }
            if changed:
                self._set_to = {}  # some of them may be set where one cannot be
                trial.set(changed)
                self._set_to = {**before, **options}
            rate = trial.turn(stretch)
            self._turns += 1
            return rate
        except TrialError:
            if not trial.alive:
                self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._trial is not None:
            trial, self._trial = self._trial, None
            trial.close()


@dataclass(frozen=True)
class Entrant:
    """A choice that can run: a process, the options that are set in it, and what ends it."""

    host: Host
    options: Mapping[str, Option]
    leave: Callable[[], None]
    stretch: Stretch = field(default_factory=Stretch)

    @property
    def granularity(self) -> float:
        """How much its mean rate may be off by where its turns have begun and ended."""
        return self.stretch.granularity

    def turn(self) -> float:
        """Units a second over a turn. Raises: TrialError."""
        return self.host.turn(self.options, self.stretch)

    def close(self) -> None:
        """Let the process end if nobody else uses it."""
        self.leave()


class ProcessBench:
    """Runs choices in turns, each in a process of its own, which rests while it is not its turn.

    side: the target with the settings that it has before the search. levers: all that it has;
    `allow` says which of them may be tried. unchecked: why it cannot be checked whether a change
    keeps what the loop computes.
    Raises: TrialError if the target does not run as it is.
    """

    places = 2
    same_work = True
    usual_noise = 0.03
    warm_rounds, least_rounds, final_rounds = 3, 2, 6
    judging_share = 0.35  # with its opening, where it is not open any more

    def __init__(self, side: Side, seed: int) -> None:
        self.unchecked = ""
        self._side, self._seed = side, seed
        self._acting: dict[str, frozenset[str]] = {}
        self._where: dict[str, str] = {}  # each lever acts
        self._hosts: dict[str, Host] = {}
        self._kept: set[Choice] = set()  # choices that keep what the loop computes, as keys
        self._begun: dict[str, GuardedProcess] = {}  # by what they are made with
        self._scout = Host(lambda: Trial(GuardedProcess(side, seed), check=None))
        first = self._scout.running()
        self._prints, self._checked_after = first.prints, first.checked
        self.unit = first.unit
        self.levers = [self._lever(each) for each in first.ask({"levers": True})["levers"]]
        self.space = Space(())

    def allow(self, levers: Sequence[Lever]) -> None:
        """Let some of its levers be tried."""
        self.space = Space(levers)
        made, live = self.parts(self.space.start)
        self._scout.holds(live)
        self._scout.users += 1  # as long as the search lasts: it also says which levers act
        self._hosts[json.dumps(made)] = self._scout

    @property
    def free(self) -> Collection[str]:
        """The levers that are set while a process runs."""
        return [name for name in self.space.levers if self._where[name] == LIVE]

    def begin(self, choices: Sequence[Choice]) -> None:
        """Start the processes of choices side by side: starting takes one core, and longest."""
        for choice in choices:
            made, _ = self.parts(choice)
            side = self.side_of(self.space.choice(made))
            if json.dumps(made) not in self._hosts and _key(side) not in self._begun:
                self._begun[_key(side)] = self._process(side)

    def open(self, choice: Choice, *, checked: bool = False) -> "Entrant":
        """Let a choice run: in a process of its own where it is made with other settings.

        checked: start one in any case, and compare what it computes in its first iterations, unless
        that is known, or cannot be known. What is started anew is compared all the same.
        Raises: TrialError.
        """
        known = keyed(choice) in self._kept or self.space.keeps_result(choice) is False
        to_check = bool(self.space.changes(choice)) and not known and not self.unchecked
        made, live = self.parts(choice)
        _, at_start = self.parts(self.space.start)
        key = json.dumps(made)
        # A process that is started anyway is checked at once: that takes a moment, a start seconds.
        if to_check and (checked or (key not in self._hosts and live == at_start)):
            host = Host(lambda: self._checked(choice), at_start)
            host.running()
            self._kept.add(keyed(choice))
            if key in self._hosts or live != at_start:
                return Entrant(host, {}, host.close)
            self._hosts[key] = host
        if key not in self._hosts:
            side = self.side_of(self.space.choice(made))
            self._hosts[key] = Host(lambda: Trial(self._process(side)), at_start)
        host = self._hosts[key]
        host.users += 1
        entrant = Entrant(host, live, lambda: self._left(key))
        try:
            host.running()
        except BaseException:
            entrant.close()
            raise
        return entrant

    def parts(self, choice: Choice) -> tuple[dict[str, Option], dict[str, Option]]:
        """The options that a process is made with, and those that are set while it runs."""
        options = self.space.options(choice)
        acting = dict(choice)
        made = {n: o for n, o in options.items() if self._where[n] != LIVE and n in acting}
        return made, {n: o for n, o in options.items() if self._where[n] == LIVE}

    def _process(self, side: Side) -> GuardedProcess:
        """A process of another choice than the start, which may not take for ever.

        It is one that has begun already, if there is one.
        """
        if _key(side) in self._begun:
            return self._begun.pop(_key(side))
        limit_s = PATIENCE * self._scout.running().longest_s + GRACE_S
        return GuardedProcess(side, self._seed, limit_s)

    def _left(self, key: str) -> None:
        """End a process that nobody uses any more."""
        host = self._hosts[key]
        host.users -= 1
        if not host.users:
            self._hosts.pop(key).close()

    def _checked(self, choice: Choice) -> Trial:
        """A process of a choice that is known to keep what the loop computes."""
        trial = Trial(self._process(self.side_of(choice)), check=self._checked_after)
        try:
            self._check(trial, self.space.keeps_result(choice))
        except BaseException:
            trial.close()
            raise
        return trial

    def next_round(self) -> None:
        """Turns share nothing here."""

    def close(self) -> None:
        """End all processes."""
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()
        for process in self._begun.values():
            process.close()
        self._begun.clear()
        self._scout.close()

    def side_of(self, choice: Choice) -> Side:
        """The side of a choice: without the settings of levers that do not act."""
        changes, acting = self.space.changes(choice), dict(choice)
        settings = {
            name: value
            for name, value in self._side.settings.items()
            if self._where.get(name) != SETTING or name in acting
        }
        settings |= {n: str(o) for n, o in changes.items() if self._where[n] == SETTING}
        levers = {n: o for n, o in changes.items() if self._where[n] != SETTING}
        return replace(self._side, settings=settings, levers={**self._side.levers, **levers})

    def _check(self, trial: Trial, kept: bool | float) -> None:
        """Refuse a trial that computes something else, if equal runs compute the same at all."""
        found = difference(self._prints, trial.prints, kept)
        if found is None and self._prints:
            return
        again = Trial(GuardedProcess(self._side, self._seed), check=self._checked_after)
        again.close()
        self.unchecked = unlike(self._prints, again.prints)
        if not self.unchecked:
            raise TrialError(f"it changes what the loop computes: {found}")

    def _lever(self, described: Mapping[str, Any]) -> Lever:
        """A lever as its process has described it; what it does happens there."""
        name = described["name"]
        self._where[name] = described["where"]
        plain = ("now", "about", "area", "risk", "missing", "keeps_result")
        known = {key: described[key] for key in plain}
        return Lever(
            name,
            tuple(described["options"]),
            **known,
            stages=tuple(described["stages"]),
            applies=(
                always
                if described["always"]
                else lambda options: name in self._names_acting(options)
            ),
            apply=None if described["where"] == SETTING else _elsewhere,
        )

    def _names_acting(self, options: Options) -> frozenset[str]:
        """The levers that act with these options, as the process of the start says."""
        key = json.dumps(dict(options))
        if key not in self._acting:
            said = self._scout.running().ask({"acting": dict(options)})
            self._acting[key] = frozenset(said["acting"])
        return self._acting[key]


def _key(side: Side) -> str:
    """What a process is made with."""
    return json.dumps([dict(side.settings), dict(side.levers)], sort_keys=True)


def _elsewhere(_option: Option) -> None:
    raise AssertionError("this lever is set in the process of its loop")
