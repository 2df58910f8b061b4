"""The log of one rank: when its iterations began, and when it reached what waits for other ranks.

All ranks of a machine have one clock, so that these moments can be compared.
"""

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from hotloop.loop.stage_types import StageView
from hotloop.recognise.places import BACKWARD, COMMUNICATION, DATA_PARALLEL, SUMMED_PASSES
from hotloop.recognise.recognition import Recognition

# The times that DDP notes of its last pass are read no more often than this.
READ_NS = 100_000_000
MOST_ITERATIONS = 200_000
# An iteration is left out if what the measurement itself did at its start took longer than both.
MOST_OWN, MOST_OWN_NS = 0.02, 500_000


class RankRows(TypedDict):
    """What a rank has logged of the iterations in which nothing was changed, one after the other.

    number, start_ns, end_ns: of each iteration; arrived_ns: when it called what waits for other
    ranks. stage_ns: the number of each stage, and its time. units: those counted, by name.
    stages: their names. exchange_ns: by the number of an iteration, of the pass of DDP in it, the
    time from the first gradients that were sent to the last that came back, and how much of it the
    pass computed on; not of every iteration.
    """

    number: list[int]
    start_ns: list[int]
    end_ns: list[int]
    arrived_ns: list[tuple[int, ...]]
    stage_ns: list[tuple[tuple[int, int], ...]]
    units: list[tuple[tuple[str, float], ...]]
    stages: list[str]
    exchange_ns: dict[int, tuple[int, int]]


class RankLog:
    """Writes the rows of one rank while its script runs."""

    def __init__(self, recognition: Recognition) -> None:
        self._recognition = recognition
        self._rows = RankRows(
            number=[],
            start_ns=[],
            end_ns=[],
            arrived_ns=[],
            stage_ns=[],
            units=[],
            stages=[],
            exchange_ns={},
        )
        self.collectives = 0  # called since the script began
        self._passes = 0  # of modules whose gradients are summed
        self._number = 0  # of the iteration that runs; 0: before the first
        self._start_ns = 0
        self._arrived: list[int] = []
        self._units: dict[str, float] = {}
        self._seen = 0  # events
        self._last: object = None  # of them
        self._next_read_ns = 0
        self._read_pass = -1

    def called(self, called: StageView, now_ns: int) -> None:
        """Note that a stage is called on the script's own thread."""
        if called.name == COMMUNICATION or (called.name == BACKWARD and self._sums_gradients()):
            self.collectives += 1
            self._arrived.append(now_ns)

    def begin(self, number: int, now_ns: int, unchanged: bool) -> None:
        """Note that an iteration begins; unchanged: whether in the last one every stage was real.

        What the stages did meanwhile is read from the events that are not drained yet.
        """
        events = self._new_events()
        begun_ns = min((event[1] for event in events), default=now_ns)
        own_ns, lasted_ns = begun_ns - self._start_ns, now_ns - self._start_ns
        disturbed = own_ns > max(MOST_OWN_NS, MOST_OWN * lasted_ns)
        few = len(self._rows["number"]) < MOST_ITERATIONS
        if unchanged and self._number and not disturbed and few:
            rows = self._rows
            stage_ns: Counter[int] = Counter()
            for stage, start_ns, end_ns, _lane in events:
                stage_ns[stage] += end_ns - start_ns
            units = {
                unit: total - self._units.get(unit, 0.0)
                for unit, total in self._recognition.units.items()
            }
            rows["number"].append(self._number)
            rows["start_ns"].append(self._start_ns)
            rows["end_ns"].append(now_ns)
            rows["arrived_ns"].append(tuple(self._arrived))
            rows["stage_ns"].append(tuple(stage_ns.items()))
            rows["units"].append(tuple(units.items()))
            if now_ns >= self._next_read_ns:
                self._next_read_ns = now_ns + READ_NS
                self._read_exchange()
        self._units = dict(self._recognition.units)
        self._number, self._start_ns, self._arrived = number, now_ns, []

    def save(self, path: Path) -> None:
        """Write the rows; another thread may go on adding to them."""
        rows = self._rows
        count = len(rows["units"])  # which are noted last
        cut = RankRows(
            number=rows["number"][:count],
            start_ns=rows["start_ns"][:count],
            end_ns=rows["end_ns"][:count],
            arrived_ns=rows["arrived_ns"][:count],
            stage_ns=rows["stage_ns"][:count],
            units=rows["units"][:count],
            stages=list(self._recognition.control.names()),
            exchange_ns=dict(rows["exchange_ns"]),
        )
        path.write_bytes(pickle.dumps(cut))

    def _sums_gradients(self) -> bool:
        """Whether a module was called, since the last time, whose backward pass sums gradients."""
        before, self._passes = self._passes, self._recognition.kept.get(SUMMED_PASSES, 0)
        return bool(self._passes != before)

    def _new_events(self) -> list[Sequence[int]]:
        """The script's own calls since the last iteration began."""
        control = self._recognition.control
        events, main = control.events, control.main_thread
        begin = self._seen
        if begin and (len(events) < begin or events[begin - 1] is not self._last):
            begin = 0  # they have been drained
        new = events[begin:]
        self._seen = begin + len(new)
        if new:
            self._last = new[-1]
        return [event for event in new if event[3] == main]

    def _read_exchange(self) -> None:
        """Note what DDP says of its last pass: it does so when the forward pass after it begins."""
        for module in self._recognition.kept.get(DATA_PARALLEL, [])[:1]:
            noted = module._get_ddp_logging_data()
            number = int(noted.get("iteration", -1))
            if number != self._read_pass and noted.get("backward_comm_time"):
                self._read_pass = number
                times = noted["backward_comm_time"], noted["backward_compute_comm_overlap_time"]
                self._rows["exchange_ns"][self._number - 1] = times
