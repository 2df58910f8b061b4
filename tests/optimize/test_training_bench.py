"""Trainings as turns of a race: how long each may take, and what one that does not end counts."""

import math

import pytest

from hotloop.loop.lever import Lever
from hotloop.optimize import training_bench
from hotloop.optimize.bench import TrialError
from hotloop.optimize.search import Search
from hotloop.optimize.space import Space
from hotloop.optimize.training_bench import TrainingBench, TrainingProcess
from hotloop.repeat.sides import LOOP, Side

RATE = "learning_rate"
SPACE = Space([Lever(RATE, (1, 2, 4), now=1, keeps_result=False)])
# Seconds to the target, in turns: the same mean for 1 and 2, of which 2 is often the faster.
SECONDS = {1: [10.0, 10.0, 10.0], 2: [2.0, 2.0, 26.0], 4: [4.0, 5.0, 3.0]}


class Trainings:
    """Stands for a process that trains: planted seconds to the target on a clock of its own."""

    def __init__(self, seconds: dict[int, list[float]]) -> None:
        self.now_s = 0.0
        self.limits: list[tuple[int, float]] = []
        self._seconds, self._counts = seconds, dict.fromkeys(seconds, 0)

    ended = False

    def train(self, side: Side, _seed: int, limit_s: float) -> float | None:
        rate = int(side.settings[RATE])
        self.limits.append((rate, limit_s))
        planted = self._seconds[rate]
        needed = planted[self._counts[rate] % len(planted)]
        self._counts[rate] += 1
        self.now_s += min(needed, limit_s)
        return needed if needed < limit_s else None

    def close(self) -> None:
        """It is no process."""


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    found = Trainings(SECONDS)
    monkeypatch.setattr(training_bench, "TrainingProcess", lambda _side: found)
    return found


def bench(limit_s: float = 60.0) -> TrainingBench:
    def side_of(choice) -> Side:
        settings = {RATE: str(dict(choice)[RATE])}
        return Side(name="x", text="x", kind=LOOP, words=("ppo:x",), settings=settings)

    return TrainingBench(SPACE, side_of, limit_s, seed=0)


def test_a_training_may_take_twice_what_those_of_the_start_take(trainings: Trainings) -> None:
    trained = bench()
    start, other = trained.open(SPACE.start), trained.open(SPACE.choice({RATE: 2}))
    assert start.turn() == pytest.approx(1 / 10)
    turns = [other.turn() for _ in range(3)]
    assert trainings.limits == [(1, 60.0), (2, 20.0), (2, 20.0), (2, 20.0)]
    assert turns == pytest.approx([1 / 2, 1 / 2, 1 / 40])  # not solved within 20 s: counts as 40


def test_the_start_may_always_take_as_long_as_at_first(trainings: Trainings) -> None:
    trained = bench()
    start = trained.open(SPACE.start)
    for _ in range(3):
        start.turn()
    assert trainings.limits == [(1, 60.0)] * 3


def test_what_is_seldom_fast_and_often_slow_does_not_win(trainings: Trainings) -> None:
    search = Search(SPACE, bench(), 600.0, lambda: trainings.now_s, seed=1)
    search.run()
    assert SPACE.changes(search.best) == {RATE: 4}
    assert search.gain is not None
    assert search.gain.value == pytest.approx(2.5, rel=0.1)
    assert math.isfinite(search.gain.low)
    assert search.gain.low > 1


@pytest.mark.long
def test_one_process_trains_again_and_again_and_what_fails_fails_alone() -> None:
    settings = {"num_envs": "2", "fragment_steps": "16", "evaluate_every": "32"}
    reached = settings | {"target_return": "1"}

    def side(settings: dict[str, str]) -> Side:
        target = "ppo:CartPole-v1"
        return Side(name="x", text="x", kind=LOOP, words=(target,), settings=settings)

    process = TrainingProcess(side(reached))
    try:
        first = process.train(side(reached), seed=1, limit_s=60.0)
        assert first is not None
        assert first > 0
        with pytest.raises(TrialError, match="there is no setting 'num_env'; did you mean"):
            process.train(side({"num_env": "2"}), seed=1, limit_s=60.0)
        assert process.train(side(settings | {"target_return": "501"}), 1, limit_s=0.01) is None
        assert process.train(side(reached), seed=2, limit_s=60.0) is not None
        assert not process.ended
    finally:
        process.close()
