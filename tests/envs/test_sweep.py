"""A sweep of backends: fair rounds, failures told and not fatal, nothing left open."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

from hotloop.envs import backends as table
from hotloop.envs.backends import measurable, names_in, variants_of, worker_numbers
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.sweep import Entry, Sweep, SweepSettings, _Opener, _Racer
from hotloop.envs.turns import Turns
from hotloop.envs.workload import Probe, Variant, Workload
from hotloop.errors import SettingError, TargetError, WorkerError

PROBE = Probe(step_s=1e-3, late_step_s=1e-3, busy=1.0, obs_bytes=64, make_s=1e-3, steps=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class StubEnvs(gymnasium.vector.VectorEnv):
    """Four envs whose step takes a set time of a fake clock; what happens is written down."""

    num_envs = 4
    single_action_space = spaces.Discrete(2)

    def __init__(self, name: str, seconds: float, clock: Clock, log: list[str]) -> None:
        self.name, self.seconds, self.clock, self.log = name, seconds, clock, log
        self.fails_at: int | None = None
        self.error: BaseException = RuntimeError("it broke")
        self.steps = 0
        self.closings = 0

    def reset(self, *, seed=None, options=None):
        return None, {}

    def step(self, actions):
        self.steps += 1
        if self.steps == self.fails_at:
            raise self.error
        self.clock.now += self.seconds
        if not self.log or self.log[-1] != self.name:
            self.log.append(self.name)
        return ()

    def close_extras(self):  # as narrow as that of some native engines
        self.closings += 1


class Bench:
    """Three stubs, at 0.5, 1 and 2 ms a step, and a sweep over them; seconds: of each."""

    def __init__(self, seconds: float = 0.6) -> None:
        self.clock, self.log = Clock(), []
        self.stubs = {
            name: StubEnvs(name, cost, self.clock, self.log)
            for name, cost in (("serial", 0.001), ("process", 0.002), ("native", 0.0005))
        }
        self.sweep = Sweep(
            "Stub-v0", SweepSettings(num_envs=4, seconds=3 * seconds), clock=self.clock
        )
        self.variants = [Variant(name) for name in self.stubs]

    def measure(self) -> np.ndarray:
        self.sweep.measure(self.variants, self.open, lambda share, what: None)
        return self.sweep.arrays()["sps"]

    def open(self, variant: Variant) -> StubEnvs:
        return self.stubs[variant.backend]


def test_the_rate_is_that_of_the_steps() -> None:
    sps = Bench().measure()
    assert sps.shape == (3, 3)
    for row, cost in zip(sps, (0.001, 0.002, 0.0005), strict=True):
        np.testing.assert_allclose(row, 4 / cost, rtol=0.01)


def test_every_round_holds_every_variant_once_in_an_order_of_its_own() -> None:
    bench = Bench(seconds=6)
    rounds = bench.measure().shape[1]
    assert rounds >= 19
    assert np.isfinite(bench.sweep.arrays()["sps"]).all()
    turns = bench.log[3:]  # the first three are the warming up
    # Two turns of one variant in a row, at the ends of two rounds, are one entry of the log.
    assert 2 * rounds < len(turns) <= 3 * rounds
    orders = {tuple(bench.log[k : k + 3]) for k in range(3, len(bench.log) - 3, 3)}
    assert len(orders) > 2


def test_the_seconds_are_those_of_all_turns_together() -> None:
    bench = Bench(seconds=6)
    bench.measure()
    assert bench.clock.now == pytest.approx(18, rel=0.1)


def test_the_order_follows_from_the_seed() -> None:
    logs = []
    for _ in range(2):
        bench = Bench()
        bench.measure()
        logs.append(bench.log)
    assert logs[0] == logs[1]


def test_a_variant_that_cannot_be_made_is_told_and_the_others_are_measured() -> None:
    bench = Bench()
    bench.variants.insert(1, Variant("ray"))
    sps = bench.measure()  # no stub has that name: the opener raises a KeyError
    assert np.isnan(sps[1]).all()
    assert np.isfinite(sps[[0, 2, 3]]).all()
    told = bench.sweep.facts()["variants"]
    assert [variant["problem"] for variant in told] == [None, "KeyError: 'ray'", None, None]


def test_a_variant_that_breaks_is_told_and_the_others_go_on() -> None:
    bench = Bench()
    bench.stubs["process"].fails_at = 200
    sps = bench.measure()
    assert bench.sweep.entries[1].problem == "RuntimeError: it broke"
    assert np.isfinite(sps[[0, 2]]).all()
    assert np.isnan(sps[1, -1])
    assert bench.stubs["process"].steps == 200
    assert [stub.closings for stub in bench.stubs.values()] == [1, 1, 1]


def test_an_interrupt_keeps_the_samples_and_closes_all() -> None:
    bench = Bench()
    bench.stubs["native"].fails_at = 700
    bench.stubs["native"].error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.measure()
    assert np.isfinite(bench.sweep.arrays()["sps"]).sum() >= 3
    assert [stub.closings for stub in bench.stubs.values()] == [1, 1, 1]


def test_an_interrupt_while_variants_are_made_closes_those_that_are() -> None:
    bench = Bench()

    def opener(variant: Variant) -> StubEnvs:
        if variant.backend == "native":
            raise KeyboardInterrupt
        return bench.open(variant)

    with pytest.raises(KeyboardInterrupt):
        bench.sweep.measure(bench.variants, opener, lambda share, what: None)
    assert [stub.closings for stub in bench.stubs.values()] == [1, 1, 0]
    assert bench.sweep.arrays()["sps"].shape == (3, 0)


def test_a_step_longer_than_a_round_is_still_measured() -> None:
    bench = Bench()
    bench.stubs["process"].seconds = 2.0
    np.testing.assert_allclose(bench.measure()[1], 4 / 2.0)


class CountingEnv(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        type(self).steps += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("splits", [1, 2])
def test_every_env_step_is_counted_and_none_is_left_under_way(splits: int) -> None:
    CountingEnv.steps = 0
    envs = SerialVectorEnv([CountingEnv] * 6, splits=splits)
    envs.reset(seed=0)
    more = iter([True] * 7 + [False])
    counted = Turns(envs, splits).step_while(lambda: next(more))
    assert counted == CountingEnv.steps
    assert counted >= 7 * 6 // splits
    envs.step(envs.action_space.sample())  # raises if an env were under way
    envs.close()


class WatchedEnvs(SerialVectorEnv):
    closed_with: dict | None = None

    def close_extras(self, **kwargs):
        self.closed_with = kwargs
        super().close_extras(**kwargs)


@pytest.mark.parametrize(
    ("raised", "problem", "how"),
    [
        (None, None, {}),
        (KeyboardInterrupt, None, {"terminate": True}),
        (None, "broken", {"terminate": True}),
    ],
)
def test_steps_under_way_are_awaited_only_where_all_went_well(
    raised: type | None, problem: str | None, how: dict
) -> None:
    envs = WatchedEnvs([CountingEnv])
    _Racer(0, Entry(Variant("serial"), problem), envs).close(raised, None, None)
    assert envs.closed_with == how


def test_a_closing_that_fails_is_told() -> None:
    bench = Bench()
    bench.stubs["native"].close_extras = lambda: 1 / 0
    bench.measure()
    problem = bench.sweep.entries[2].problem
    assert problem == "closing it failed: ZeroDivisionError: division by zero"
    assert [stub.closings for stub in bench.stubs.values()] == [1, 1, 0]


def test_worker_numbers_go_to_twice_the_cores() -> None:
    assert worker_numbers(64, cores=2) == [1, 2, 3, 4]
    assert worker_numbers(64, cores=48) == [1, 2, 3, 4, 8, 16, 32, 48, 64]
    assert worker_numbers(2, cores=48) == [1, 2]
    assert worker_numbers(1, cores=1) == [1]


def test_more_workers_are_tried_where_envs_wait() -> None:
    assert worker_numbers(100, cores=2, busy=0.1) == [1, 2, 3, 4, 8, 16, 32, 64]
    assert worker_numbers(10, cores=2, busy=0.1) == [1, 2, 3, 4, 8, 10]


def test_no_worker_is_planned_without_an_env() -> None:
    for num_envs in (1, 2, 3, 5, 64):
        for variant in variants_of(measurable(), Workload(PROBE, num_envs, cores=8)):
            assert num_envs % variant.splits == 0
            assert (variant.num_workers or 1) * variant.splits <= num_envs


def test_backends_are_named_by_a_list() -> None:
    assert names_in("all") == measurable() == ("serial", "native", "process", "auto", "ray")
    assert names_in("process, serial,process") == ("serial", "process")
    with pytest.raises(SettingError, match="got 'proces'; did you mean 'process'"):
        names_in("serial,proces")
    with pytest.raises(SettingError, match="got ''"):
        names_in("")


def opener(env_id: str, num_envs: int = 2) -> _Opener:
    return _Opener(env_id, num_envs, ExitStack())


def test_without_ray_one_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.importlib.util, "find_spec", lambda name: None)
    assert variants_of(["ray"], Workload(PROBE, 64, cores=2)) == [Variant("ray")]
    with pytest.raises(WorkerError, match=r"^Ray is not installed: pip install"):
        opener("CartPole-v1")(Variant("ray"))


@pytest.mark.parametrize("named", [None, "10.0.0.1:6379"])
def test_a_cluster_is_joined_only_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    session = pytest.importorskip("hotloop.envs.ray.session")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if named is not None:
        monkeypatch.setenv("RAY_ADDRESS", named)
    calls: list[object] = []
    monkeypatch.setattr(session.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(session.ray, "shutdown", lambda: calls.append("shutdown"))
    monkeypatch.setattr(session, "start_ray", lambda address, quiet: calls.append(address))
    with session.own_session():
        assert calls == [named or "local"]
    assert calls[1:] == ["shutdown"]


def test_a_session_is_entered_once_before_the_first_variant_of_its_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    @contextmanager
    def session() -> Iterator[None]:
        calls.append("begin")
        yield
        calls.append("end")

    backend = replace(table.BACKENDS["serial"], session=session)
    monkeypatch.setitem(table.BACKENDS, "serial", backend)
    with ExitStack() as sessions:
        opened = _Opener("CartPole-v1", 2, sessions)
        for _ in range(2):
            opened(Variant("serial")).close()
        assert calls == ["begin"]
    assert calls == ["begin", "end"]


def test_an_env_without_a_vector_env_of_its_own() -> None:
    with pytest.raises(TargetError, match="no vector env of its own"):
        opener("Acrobot-v1")(Variant("native"))


def children() -> list[int]:
    """Those of this process, but for the one that looks after shared memory."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "resource_tracker" not in " ".join(child.cmdline()):
                found.append(child.pid)
    return found


@pytest.mark.long
def test_a_real_sweep_leaves_no_process() -> None:
    settings = SweepSettings(
        num_envs=2, backends=("serial", "native", "process", "auto"), seconds=0.06
    )
    sweep = Sweep("CartPole-v1", settings)
    heard: list[str] = []
    before = set(children())
    sweep.run(lambda share, what: heard.append(what))
    assert [entry.problem for entry in sweep.entries] == [None] * len(sweep.entries)
    assert {"making process x 2", "process x 1, 2 splits", "native"} <= set(heard)
    sps = sweep.arrays()["sps"]
    assert sps.shape == (6, 3)
    assert (sps > 0).all()
    facts = sweep.facts()
    assert facts["variants"][-1]["chosen"] in ("serial", "process")
    assert "a step takes" in facts["choice"]
    assert set(children()) <= before


def test_an_env_that_does_not_exist() -> None:
    with pytest.raises(TargetError, match="did you mean 'CartPole-v1'"):
        Sweep("CartPol-v1").run(lambda share, what: None)
    with pytest.raises(SettingError, match="num_envs: expected a number above 0, got 0"):
        SweepSettings(num_envs=0)
