"""Boids: the three rules by hand, the flock as a whole, and every path with the same bits."""

import tracemalloc

import numpy as np
import pytest
import torch

from hotloop.errors import SettingError
from hotloop.models import boids
from hotloop.models.boids import PATHS, BoidsSettings
from hotloop.sim import Executor, Record

SMALL = boids.box_for(400, radius=4.0, separation_radius=1.5)
STEPS = 12


def run_of(size=400, settings=SMALL, steps=STEPS, compiled=True, **kwargs):
    model = boids.model(size, settings, num_steps=steps, compiled=compiled)
    return Executor(model, device="cpu", **kwargs).init()


def placed(columns, settings, steps=1, **kwargs):
    """A runner whose birds lie where `columns` says; a row for each bird."""
    runner = run_of(len(columns), settings, steps, **kwargs)
    for path, values in zip(PATHS, zip(*columns, strict=True), strict=True):
        runner.set_value(path, torch.tensor(values, dtype=torch.float32))
    return runner


def birds(runner) -> np.ndarray:
    return np.stack([runner.state[path].numpy() for path in PATHS])


def ended(runner) -> list[torch.Tensor]:
    return [runner.state[path].clone() for path in (*PATHS, "environment/polarisation")]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


def free(**changed) -> BoidsSettings:
    """A large box, no rule but those given, and hardly a speed limit."""
    rules = {"cohesion": 0.0, "alignment": 0.0, "separation": 0.0}
    limits = {"min_speed": 0.0, "max_speed": 10.0, "separation_radius": 2.0, "softening": 1.0}
    return BoidsSettings(**{"width": 100.0, "height": 100.0, **limits, **rules, **changed})


# --- what one bird does ---------------------------------------------------------------------------

WAYS = pytest.mark.parametrize(
    "way",
    [{"fused": False, "compiled": False}, {"fused": False}, {"fused": True}],
    ids=["tensors", "compiled sums", "fused"],
)


@WAYS
def test_a_lone_bird_flies_straight_and_around_the_box(way):
    runner = placed([(99.5, 0.25, 1.0, -0.5)], free(), steps=2, **way)
    runner.step(1)
    assert birds(runner)[:, 0].tolist() == [0.5, 99.75, 1.0, -0.5]
    runner.step(1)
    assert birds(runner)[:, 0].tolist() == [1.5, 99.25, 1.0, -0.5]


@WAYS
def test_a_lone_bird_turns_at_a_wall(way):
    runner = placed([(99.5, 0.25, 1.0, -0.5)], free(periodic=False), **way)
    runner.step(1)
    assert birds(runner)[:, 0].tolist() == [99.5, 0.25, -1.0, 0.5]


@WAYS
def test_each_rule_by_hand_across_the_sides_of_the_box(way):
    # Two birds 1 apart, on both sides of x = 0; the second flies up, the first stands.
    pair = [(99.5, 50.0, 0.0, 0.0), (0.5, 50.0, 0.0, 1.0)]

    def change(**rules):
        runner = placed(pair, free(**rules), **way)
        runner.step(1)
        return birds(runner)[2:, 0].tolist()

    near = pytest.approx
    assert change(cohesion=0.5) == near([0.5, 0.0], abs=1e-5)  # half of the way to the other
    assert change(alignment=0.25) == near([0.0, 0.25], abs=1e-5)  # a quarter of its velocity
    assert change(separation=0.5) == near([-0.25, 0.0], abs=1e-5)  # ½ · 1 / (1² + 1²), away
    assert change(separation=0.5, separation_radius=0.9) == [0.0, 0.0]  # too far to push
    assert change(cohesion=0.5, radius=0.9, separation_radius=0.5) == [0.0, 0.0]  # nor seen


@WAYS
def test_speeds_stay_within_their_limits(way):
    slow_and_fast = [(10.0, 10.0, 0.1, 0.0), (60.0, 60.0, 0.0, -5.0), (30.0, 80.0, 0.0, 0.0)]
    runner = placed(slow_and_fast, free(min_speed=0.5, max_speed=2.0), **way)
    runner.step(1)
    # A bird that stands still has no direction to be sped up in.
    assert birds(runner)[2:].T.tolist() == [[0.5, 0.0], [0.0, -2.0], [0.0, 0.0]]


# --- what the flock does --------------------------------------------------------------------------


@pytest.mark.parametrize("periodic", [True, False])
def test_a_random_flock_aligns_and_stays_whole(periodic):
    settings = BoidsSettings(
        60.0, 40.0, periodic=periodic, radius=5.0, separation_radius=2.0, alignment=0.3
    )
    runner = run_of(500, settings, 400)
    runner.step(400)
    order = runner.state["environment/polarisation"]
    assert order[0] < 0.2  # about N^(-1/2) in a random flock
    if periodic:  # walls break it up again and again
        assert order[-50:].mean() > 0.8
    x, y, vx, vy = birds(runner)
    assert len(x) == 500
    assert np.isfinite([x, y, vx, vy]).all()
    assert (x >= 0).all()
    assert (y >= 0).all()
    assert (x < 60).all() if periodic else (x <= 60).all()
    assert (y < 40).all() if periodic else (y <= 40).all()
    speed = np.hypot(vx, vy)
    assert speed.min() >= settings.min_speed - 1e-6
    assert speed.max() <= settings.max_speed + 1e-6


def test_polarisation_is_the_length_of_the_mean_heading():
    runner = run_of(steps=1)
    runner.step(1)
    vx, vy = birds(runner)[2:].astype(float)
    speed = np.hypot(vx, vy)
    expected = np.hypot((vx / speed).mean(), (vy / speed).mean())
    assert runner.state["environment/polarisation"][0] == pytest.approx(expected, abs=1e-5)


def test_birds_keep_their_names():
    still = free(max_speed=1.0)
    runner = run_of(200, still, 30)
    start = birds(runner)
    runner.step(30)
    x, y, *velocity = birds(runner)
    assert velocity == pytest.approx(start[2:], abs=1e-5)
    assert (x - start[0]) % 100 == pytest.approx((30 * start[2]) % 100, abs=1e-3)
    assert (y - start[1]) % 100 == pytest.approx((30 * start[3]) % 100, abs=1e-3)


# --- every path, the same bits --------------------------------------------------------------------


@pytest.mark.parametrize("periodic", [True, False])
def test_fused_equals_the_substeps_on_any_threads(periodic):
    sides = {"width": 35.0, "height": 60.0, "periodic": periodic}
    settings = BoidsSettings(**sides, radius=4.0, separation_radius=1.5)
    plain = run_of(settings=settings, fused=False, compiled=False)
    plain.step(STEPS)
    sums = run_of(settings=settings, fused=False)
    sums.step(STEPS)
    assert_same(ended(sums), ended(plain))
    for threads in (1, 2, 3):
        runner = run_of(settings=settings, threads=threads)
        runner.step(STEPS)
        assert_same(ended(runner), ended(plain))
        assert runner.get_performance_stats()
        runner.close()


def test_many_steps_are_single_steps():
    for fused in (True, False):
        one, many = run_of(fused=fused), run_of(fused=fused)
        many.step(STEPS)
        for _ in range(STEPS):
            one.step(1)
        assert_same(ended(one), ended(many))


def test_a_seed_gives_the_same_flight_and_another_seed_another():
    flights = []
    for seed in (3, 3, 4):
        runner = run_of(seed=seed)
        runner.step(STEPS)
        flights.append(ended(runner))
    assert_same(flights[0], flights[1])
    assert not torch.equal(flights[0][0], flights[2][0])


@WAYS
def test_a_replicate_is_the_run_of_its_seed(way):
    ensemble = run_of(replicates=3, seed=7, **way, threads=2)
    ensemble.step(STEPS)
    for run in range(3):
        single = run_of(seed=7 + run)
        single.step(STEPS)
        assert_same([value[run] for value in ended(ensemble)], ended(single))
    ensemble.close()


def test_reset_and_changed_columns_are_seen():
    runner = run_of(steps=2 * STEPS)
    runner.step(STEPS)
    first = ended(runner)
    runner.reset()
    runner.step(STEPS)
    assert_same(ended(runner), first)
    turned, expected = run_of(), run_of(fused=False)
    for other in (turned, expected):
        other.step(2)
        other.set_value("agents/birds/vx", -other.state["agents/birds/vx"])
        other.step(2)
    assert_same(ended(turned), ended(expected))


def test_weights_are_parameters():
    runner = run_of()
    named = dict(runner.named_parameters())
    assert [path.rpartition(".")[2] for path in named] == ["cohesion", "alignment", "separation"]
    path = next(path for path in named if path.endswith("alignment"))
    plain = run_of(fused=False)
    for other in (runner, plain):
        other.set_parameters({path: torch.tensor(0.5)})
        other.step(STEPS)
    assert_same(ended(runner), ended(plain))
    unchanged = run_of()
    unchanged.step(STEPS)
    assert not torch.equal(ended(runner)[0], ended(unchanged)[0])


def test_steps_allocate_nothing():
    runner = run_of(5000, boids.box_for(5000), 60, threads=1)
    runner.step(2)
    held = {path: runner.state[path].data_ptr() for path in PATHS}
    tracemalloc.start()
    runner.step(50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 5000  # less than one column
    assert held == {path: runner.state[path].data_ptr() for path in PATHS}


def test_the_record_can_follow_birds():
    runner = run_of(50, free(), 3, record=Record(agents=True), fused=False)
    runner.step(3)
    positions = [steps[-1]["agents"]["birds"]["x"] for steps in runner.state_trajectory]
    assert len(positions) == 4
    assert torch.equal(positions[-1], runner.state["agents/birds/x"])


@pytest.mark.gpu
def test_the_gpu_flies_as_the_cpu():
    model = boids.model(400, SMALL, num_steps=STEPS)
    runners = [Executor(model, device=device).init() for device in ("cpu", "cuda")]
    runners[1].state  # noqa: B018
    for path in PATHS:  # the cosines of the start may differ in a bit
        runners[1].set_value(path, runners[0].state[path].cuda())
    for runner in runners:
        runner.step(STEPS)
    assert_same([value.cpu() for value in ended(runners[1])], ended(runners[0]))


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"radius": -1.0}, "radius: expected a number above 0, got -1"),
        ({"separation_radius": 11.0}, "sees 10 far and cannot keep apart from others at 11"),
        ({"min_speed": 2.0}, "min_speed: expected 0 to max_speed, 1, got 2"),
        ({"max_speed": 60.0}, "max_speed: 60 a step crosses half of the box"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        BoidsSettings(**{"width": 100.0, "height": 100.0, **settings})


def test_a_box_too_small_for_the_radius_is_refused_with_the_model():
    with pytest.raises(SettingError, match="width: a periodic box must be more than three radii"):
        boids.model(10, BoidsSettings(25.0, 100.0))
    with pytest.raises(SettingError, match="num_agents: expected a number above 0, got 0"):
        boids.model(0)
