"""Which backend `auto` expects to be fastest, from planted measurements; and that it says why."""

import itertools
import math
import multiprocessing
import os
import time
from functools import partial
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from hotloop.envs import auto
from hotloop.envs.auto import Choice, decide, find_racers
from hotloop.envs.backends import candidates_for
from hotloop.envs.ids import native_call
from hotloop.envs.make import make_vec
from hotloop.envs.placement import OtherPrograms
from hotloop.envs.probe import probe_env
from hotloop.envs.workload import Candidate, Probe, Variant, Workload
from hotloop.errors import WorkerError
from hotloop.loop.race import Race
from hotloop.testing.synthetic import Duration, SyntheticEnv, SyntheticSettings, SyntheticVectorEnv

CHEAP = Probe(step_s=5e-6, late_step_s=6e-6, busy=1.0, obs_bytes=64, make_s=1e-3, steps=1)
HEAVY = Probe(step_s=5e-3, late_step_s=6e-3, busy=1.0, obs_bytes=64, make_s=1e-3, steps=1)
SLEEPY = Probe(step_s=20e-3, late_step_s=22e-3, busy=0.01, obs_bytes=64, make_s=1e-3, steps=1)
LARGE = Probe(step_s=50e-6, late_step_s=60e-6, busy=1.0, obs_bytes=4 << 20, make_s=1e-3, steps=1)
NATIVE = Probe(1e-3, 1e-3, 1.0, 64, 1e-3, steps=64, is_vector=True)


def _spin():
    while True:
        pass


def expect(*args, **kwargs):
    return candidates_for(Workload(*args, **kwargs))


def kind(candidate):
    return candidate.variant.backend, candidate.variant.num_workers


@pytest.mark.parametrize(
    ("probe", "envs", "cores", "backend", "workers"),
    [
        (CHEAP, 1, 8, "serial", {None}),
        (CHEAP, 8, 2, "serial", {None}),
        (CHEAP, 64, 1, "serial", {None}),
        (CHEAP, 1024, 8, "process", {8}),
        (HEAVY, 16, 8, "process", {8, 16}),
        (HEAVY, 1, 8, "serial", {None}),
        (HEAVY, 4, 1, "serial", {None}),
        (SLEEPY, 32, 2, "process", {32}),
        (SLEEPY, 500, 2, "process", {256}),  # no more than that
        (LARGE, 4, 2, "serial", {None}),  # the copies cost more than the steps
        (NATIVE, 1, 4, "serial", {None}),
        (NATIVE, 4, 4, "process", {4}),
    ],
)
def test_expectations(probe, envs, cores, backend, workers):
    got = kind(expect(probe, envs, cores)[0])
    assert got[0] == backend
    assert got[1] in workers


def test_expectations_are_sorted_and_of_possible_numbers():
    for probe in (CHEAP, HEAVY, SLEEPY, LARGE):
        for envs in (1, 3, 8, 100):
            candidates = expect(probe, envs, 4, splits=1)
            seconds = [candidate.expected_s for candidate in candidates]
            assert seconds == sorted(seconds)
            assert all(
                1 <= (candidate.variant.num_workers or 1) <= envs for candidate in candidates
            )
    assert all((c.variant.num_workers or 1) <= 4 for c in expect(SLEEPY, 8, 4, splits=2))


def test_workers_that_were_asked_for_are_kept():
    assert [kind(c) for c in expect(CHEAP, 8, 4, num_workers=3)] == [("process", 3)]


def test_beside_other_programs_more_workers_get_more_of_the_cores():
    alone = expect(HEAVY, 8, 2)
    assert kind(alone[0]) == ("process", 2)
    beside = {c.variant.num_workers: c.expected_s for c in expect(HEAVY, 8, 2, other_load=2.0)}
    assert beside[8] < beside[4] < beside[2]
    serial = {c.variant.backend: c.expected_s for c in expect(HEAVY, 8, 2, other_load=3.0)}[
        "serial"
    ]
    assert serial == pytest.approx(8 * HEAVY.step_s / (2 / 4), rel=1e-3), "two cores for four"


def test_beside_other_programs_few_workers_race_with_many_and_with_one_process():
    """There 8 workers of 32 CartPoles were expected at 0.6 ms, and took 3.5 where 2 took 1.9."""
    for others in (1.0, 2.0):
        racers = find_racers(expect(CHEAP, 64, 2, other_load=others), others)
        kinds = [kind(racer) for racer in racers]
        assert ("serial", None) in kinds
        assert ("process", 2) in kinds
        assert len(kinds) == len(set(kinds)) <= 3
    assert len(find_racers(expect(CHEAP, 64, 2), 0.0)) <= 2
    assert find_racers(expect(HEAVY, 64, 8), 0.0) == [], "nothing comes close"
    assert find_racers(expect(CHEAP, 64, 2, num_workers=2, other_load=1.0), 1.0) == []


def test_neighbours_are_counted():
    process = multiprocessing.get_context("fork").Process(target=_spin, daemon=True)
    process.start()
    try:
        neighbours = OtherPrograms()
        assert math.isnan(neighbours.busy_cores())
        time.sleep(1.0)
        # The scheduler may keep it waiting; but nothing here computes for it.
        assert neighbours.busy_cores() > 0.1
    finally:
        process.kill()
        process.join()


def test_where_there_is_a_native_engine_it_is_named():
    assert (
        native_call("CartPole-v1", 8) == 'gymnasium.make_vec("hotloop.envs:hotloop/CartPole-v1", 8)'
    )
    assert native_call("Acrobot-v1", 8) is None
    choice = Choice("serial", None, 8, CHEAP, (), native=native_call("CartPole-v1", 8))
    assert choice.reason.endswith(
        'faster: gymnasium.make_vec("hotloop.envs:hotloop/CartPole-v1", 8)'
    )


@pytest.mark.long
def test_a_probe_tells_work_from_waiting():
    def made(kind):
        settings = SyntheticSettings(step=Duration(2e-3, kind), obs_bytes=640)
        return probe_env(partial(SyntheticEnv, settings))

    sleepy, busy = made("sleep"), made("busy")
    assert sleepy.busy < 0.4 < busy.busy
    assert min(sleepy.step_s, busy.step_s) >= 2e-3
    assert sleepy.obs_bytes == 640
    assert (sleepy.steps, sleepy.is_vector) == (1, False)
    native = probe_env(partial(SyntheticVectorEnv, 7))
    assert (native.steps, native.is_vector) == (7, True)


class SleepsEveryTenth(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        self.steps += 1
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass
        if self.steps % 10 == 0:
            time.sleep(0.02)
        return 0, 0.0, False, False, {}


def test_a_step_is_late_by_the_env_not_by_other_programs():
    assert probe_env(SleepsEveryTenth).late_step_s > 0.02
    context = multiprocessing.get_context("spawn")
    spinners = [context.Process(target=_spin, daemon=True) for _ in range(4)]
    for spinner in spinners:
        spinner.start()
    try:
        settings = SyntheticSettings(step=Duration(1e-3, kind="busy"))
        probe = probe_env(partial(SyntheticEnv, settings))
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.join()
    assert probe.busy == 1.0
    assert probe.late_step_s < 1.5 * probe.step_s


def test_an_env_that_ends_its_process_is_told():
    with pytest.raises(WorkerError, match=r"first env ended its process \(exit code 3\)"):
        probe_env(lambda: os._exit(3))

    def fails():
        raise KeyError("planned")

    with pytest.raises(KeyError, match="planned"):
        probe_env(fails)


@pytest.mark.parametrize(
    ("probe", "make", "backend"),
    [
        (CHEAP, SyntheticEnv, "serial"),
        (SLEEPY, SyntheticEnv, "process"),
        (NATIVE, partial(SyntheticVectorEnv, 2), "process"),
    ],
)
def test_the_choice_is_made_and_told(probe, make, backend, monkeypatch, caplog):
    monkeypatch.setattr(auto, "probe_env", lambda *_: probe)
    monkeypatch.setattr(auto, "RACE_S", 0.0)  # nothing is raced: the expectation decides
    monkeypatch.setattr(auto, "whole_cores", lambda: 2)
    with caplog.at_level("INFO", "hotloop"):
        envs = make_vec(make, 3, timeout_s=9.0)
    assert envs.choice.backend == backend
    assert caplog.messages == [envs.choice.reason]
    assert f"{probe.step_s * 1e6:.3g} µs" in envs.choice.reason
    envs.reset(seed=0)
    envs.step(np.zeros(envs.num_envs, np.int64))
    envs.close()


def racers(*times):
    """Serial, two workers and four, with the times of a step in each round."""
    variants = [Variant("serial"), Variant("process", 2), Variant("process", 4)]
    columns = np.array(times, float).T
    return [
        Candidate(v, 1.0, float(t.mean())) for v, t in zip(variants, times, strict=False)
    ], columns


def test_a_race_is_won_by_the_fastest_where_that_is_sure():
    drift = np.array([1.0, 2.0, 1.5, 1.2])
    chosen, undecided = decide(*racers(2.0 * drift, 1.0 * drift, 1.1 * drift))
    assert (kind(chosen), undecided) == (("process", 2), [])


def test_where_a_race_cannot_tell_two_apart_fewer_workers_win():
    drift = np.array([1.0, 2.0, 1.5, 1.2])
    noise = np.array([1.3, 0.7, 1.2, 0.9])
    chosen, undecided = decide(*racers(3.0 * drift, 1.1 * drift * noise, 1.0 * drift))
    assert kind(chosen) == ("process", 2)
    assert [kind(other) for other in undecided] == [("process", 4)]
    choice = Choice("process", 2, 8, CHEAP, (), undecided=tuple(undecided))
    assert (
        "; not told apart from process x 4, so the one with fewer workers is taken" in choice.reason
    )


def test_a_race_measures_every_racer_in_every_round(monkeypatch):
    monkeypatch.setattr(auto, "RACE_S", 0.05)
    pair = [Candidate(Variant("serial"), 1.0), Candidate(Variant("process", 1), 1.0)]
    times, left = auto._race([SyntheticEnv] * 2, pair)
    assert left == [0, 1]
    assert times.shape[0] >= auto.MIN_ROUNDS
    assert times.shape[1] == 2
    assert (times > 0).all()


def test_who_is_proved_slower_leaves_the_race():
    """Beside two busy processes 2 workers were taken, which were 10% slower than 4."""
    noise = iter([1.0, 1.2, 0.9, 1.1, 0.8, 1.0] * 9)
    race = Race([lambda: 50.0, lambda: 100.0 * next(noise), lambda: 104.0 * next(noise)])
    for _ in range(6):
        race.round()
    assert auto.drop_slower(race)
    assert race.running == [1, 2]
    race.round()
    assert np.isnan(race.rates[-1, 0])
    steady = Race([lambda: 50.0, lambda: 100.0])
    for _ in range(3):
        steady.round()
    assert not auto.drop_slower(steady)
    assert steady.running == [1]


def test_those_that_are_not_told_apart_go_on_for_a_while(monkeypatch):
    ticks = itertools.count()  # a look at the clock takes 1 ms, and all else no time
    monkeypatch.setattr(auto, "time", SimpleNamespace(perf_counter=lambda: 1e-3 * next(ticks)))
    pair = [Candidate(Variant("process", number), 1.0) for number in (1, 1)]
    fns = [SyntheticEnv] * 2
    short, _ = auto._race(fns, pair)
    long, left = auto._race(fns, pair, extra_s=0.3)
    assert left == [0, 1]
    assert len(long) > len(short) or len(left) == 1
