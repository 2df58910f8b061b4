"""What is sampled of a training on a clock that only moves when told to: every number is exact."""

from collections.abc import Iterator

import pytest

from hotloop.loop.conduct import Block
from hotloop.loop.control import SharedControl
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import Run
from hotloop.recognise.period import Iteration
from hotloop.recognise.place_stage import PlaceStage
from hotloop.recognise.places import ACT, ENV_RESET, ENV_STEP, FORWARD, OPTIMISER_STEP
from hotloop.recognise.recognition import ENV_STEPS, Recognition
from hotloop.simplify.watched import WatchRecord, summarize_watch
from hotloop.watch.sampler import Sampler, counted_stage
from hotloop.watch.windows import Delays
from support.clock import FakeClock

MS = 1_000_000
ENV_NS, ACT_NS, LEARN_NS, STEPS = 2 * MS, 1 * MS, 4 * MS, 3
ITERATION_NS = STEPS * (ENV_NS + ACT_NS) + LEARN_NS


MADE: list[Recognition] = []


@pytest.fixture(autouse=True)
def libraries_as_they_were() -> Iterator[None]:
    """Put the functions of libraries back: a sampler changes what is recognised."""
    yield
    while MADE:
        MADE.pop().__exit__()


class Training:
    """Three env steps with an action each, then an update; on a clock of its own."""

    def __init__(self, delays: Delays | None = None) -> None:
        self.clock = FakeClock()
        self.control = SharedControl(self.clock)
        self.recognition = Recognition(self.control, keeps_objects=False)
        MADE.append(self.recognition)
        self.record = WatchRecord()
        self.lines: list[float] = []
        self.found: list[str] = []
        self.act = self.recognition.stage(ACT, effect="pure")
        self.env = self.recognition.stage(ENV_STEP, effect="stateful")
        self.learn = self.recognition.stage(OPTIMISER_STEP, effect="stateful")
        self.done = 0
        self.sampler = Sampler(
            self.recognition,
            self.record,
            name="planted",
            every_s=1.0,
            delays=delays,
            on_found=self.found.append,
            on_line=lambda: self.lines.append(self.sampler.iterations),
        )
        self.control.watcher = self.sampler.called

    def call(self, stage: PlaceStage, ns: int) -> None:
        """One call, as what is put in the place of a library's function makes it."""
        if not self.recognition.modes[stage.index]:
            self.clock.wait_ns(ns)
            return
        stage.call(self.clock.wait_ns, (ns,), {}, "call")
        if stage is self.env:
            self.recognition.count(ENV_STEPS, 1)

    def run(self, iterations: int, learns: bool = True) -> None:
        for _ in range(iterations):
            for _ in range(STEPS):
                self.call(self.act, ACT_NS)
                self.call(self.env, ENV_NS)
            if learns:
                self.call(self.learn, LEARN_NS)
            self.done += 1
            self.sampler.look_after()

    def run_until_found(self) -> None:
        while not self.found:
            self.run(1)

    def summary(self):
        record = self.record
        record.periods.append((1.0, 1.0, 1.0))
        return summarize_watch(Run("watch", "planted", {}, record.facts(), record.arrays()))


def test_iterations_are_counted_and_the_shares_are_those_that_were_planted() -> None:
    training = Training()
    training.run_until_found()
    first = training.done
    training.run(2_000)
    assert training.sampler.iterations == pytest.approx(training.done - first, abs=1)
    assert training.sampler.units_per_iteration == STEPS
    assert training.record.unit == ENV_STEPS
    shares = {stage.name: stage.share.value for stage in training.summary().stages}
    assert shares == {
        ACT: pytest.approx(STEPS * ACT_NS / ITERATION_NS),
        ENV_STEP: pytest.approx(STEPS * ENV_NS / ITERATION_NS),
        OPTIMISER_STEP: pytest.approx(LEARN_NS / ITERATION_NS),
    }
    # A line each second, as the clock has it.
    assert len(training.lines) == pytest.approx(2_000 * ITERATION_NS / 1e9, abs=1)


def test_all_calls_are_timed_in_few_iterations_only() -> None:
    training = Training()
    training.run_until_found()
    training.run(3_000)
    assert 0 < training.summary().sampled < 0.1 * training.done


def test_a_machine_that_stands_still_within_a_window_keeps_no_later_one_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training()
    training.run_until_found()
    training.run(3_000)  # the first windows come at once, whatever they cost
    windows = training.sampler._windows
    keep = windows._keep

    def after_a_minute(block: Block) -> None:
        training.clock.wait_ns(60_000 * MS)
        monkeypatch.undo()
        keep(block)

    monkeypatch.setattr(windows, "_keep", after_a_minute)
    opened = len(training.record.sampled.stage_ns)
    training.run(3_000)
    assert len(training.record.sampled.stage_ns) > opened + 2


def test_between_windows_only_the_stage_that_counts_is_measured() -> None:
    training = Training()
    training.run_until_found()
    training.run(20)
    modes = training.recognition.modes
    assert modes[training.learn.index]
    assert not modes[training.env.index]
    assert not modes[training.act.index]


def test_the_delays_of_a_serial_loop_are_felt_whole() -> None:
    training = Training(Delays(0.2))
    training.run_until_found()
    training.run(3_000)
    delays = training.summary().delays
    assert {each.name for each in delays} == {ACT, ENV_STEP, OPTIMISER_STEP}
    for each in delays:
        assert isinstance(each.sensitivity, Interval)
        assert each.sensitivity.value == pytest.approx(1)
        assert not isinstance(each.slack, Unknown)
        assert each.slack.slack_ns.value == 0


@pytest.mark.long
def test_what_does_not_hold_the_loop_up_has_slack() -> None:
    """An iteration waits for 30 ms of something else, so that a delay below that is not felt."""

    class Waiting(Training):
        def run(self, iterations: int, learns: bool = True) -> None:
            for _ in range(iterations):
                start = self.clock.now_ns()
                super().run(1, learns)
                self.clock.wait_ns(30 * MS - (self.clock.now_ns() - start))

    training = Waiting(Delays(0.2))
    training.run_until_found()
    training.run(3_000)
    delay_ns = 15 * MS  # half of an iteration
    for each in training.summary().delays:
        assert isinstance(each.sensitivity, Interval)
        assert each.delay_ns == pytest.approx(delay_ns)
        assert each.sensitivity.value == pytest.approx(0, abs=1e-9)
        assert not isinstance(each.slack, Unknown)
        assert each.slack.slack_ns.value == pytest.approx(delay_ns)


@pytest.mark.long
def test_delays_take_their_share_at_most() -> None:
    plain, delayed = Training(), Training(Delays(0.05))
    for training in (plain, delayed):
        training.run_until_found()
        training.run(5_000)
    more = delayed.clock.time_ns - plain.clock.time_ns
    assert 0.01 * delayed.clock.time_ns < more <= 0.05 * delayed.clock.time_ns


def test_too_few_pairs_say_so() -> None:
    training = Training(Delays(0.02))
    training.run_until_found()
    while not training.record.pairs:
        training.run(1)
    (each,) = training.summary().delays
    assert isinstance(each.sensitivity, Unknown)
    assert "1 pairs of blocks" in each.sensitivity.why


def test_iterations_that_end_are_looked_for_again() -> None:
    """The stage that counted is called no more: the clock of another thread asks."""
    training = Training()
    training.run_until_found()
    training.run(200)
    for _ in range(5_000):
        training.run(1, learns=False)
        training.sampler.look_after()
    assert len(training.found) == 2
    assert OPTIMISER_STEP not in training.found[1]


@pytest.mark.long
def test_an_update_that_comes_late_is_no_surprise_for_long() -> None:
    """What repeats for a minute without an update is taken as an iteration until one comes."""
    training = Training()
    while not training.found:
        training.run(1, learns=False)
    training.run(4_000)
    assert OPTIMISER_STEP in training.found[-1]


def test_calls_of_other_threads_are_not_counted() -> None:
    import threading

    training = Training()
    training.run_until_found()
    before = training.sampler.iterations
    other = threading.Thread(target=training.call, args=(training.learn, 1))
    other.start()
    other.join()
    assert training.sampler.iterations == before


def test_what_repeats_nothing_is_looked_for_less_and_less() -> None:
    training = Training()
    for k in range(100_000):
        training.call(training.env, ENV_NS * (1 + (k * k % 977) ** 3 // 977**2))
        training.sampler.look_after()
        if not any(training.recognition.modes):
            break
    else:
        raise AssertionError("the search goes on for ever")
    assert training.record.why_not


@pytest.mark.parametrize(
    ("calls", "chosen"),
    [
        ({ENV_STEP: 128.0, OPTIMISER_STEP: 16.0}, (OPTIMISER_STEP, 16.0)),
        ({ENV_STEP: 128.0, OPTIMISER_STEP: 15.5}, (ENV_STEP, 128.0)),
        ({FORWARD: 1.0, OPTIMISER_STEP: 1.0}, (OPTIMISER_STEP, 1.0)),
        # A validation calls the loader too.
        ({"data": 1.0, FORWARD: 1.0, OPTIMISER_STEP: 1.0}, (OPTIMISER_STEP, 1.0)),
        # Where one was among the iterations that were seen, an update comes nearly each time.
        ({"data": 1.0, FORWARD: 0.91, OPTIMISER_STEP: 0.91}, (OPTIMISER_STEP, 1.0)),
        ({FORWARD: 1.0, "env reset": 0.1}, (FORWARD, 1.0)),
        ({ENV_RESET: 0.01}, (ENV_RESET, 0.01)),
    ],
)
def test_the_stage_that_counts(calls: dict[str, float], chosen: tuple[str, float]) -> None:
    assert counted_stage(Iteration(ENV_STEP, ENV_STEP, calls, 1.0, 1.0, 9)) == chosen
