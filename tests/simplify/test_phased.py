"""A loop whose iterations are long: its phases are experiments of their own, and count together."""

import dataclasses
import time

import pytest

import hotloop
from hotloop.loop.arm import REAL, Arm
from hotloop.loop.conduct import Block, Conductor, Measurement, Request
from hotloop.loop.control import process_control
from hotloop.loop.figures import Interval, Unknown
from hotloop.loop.run import load
from hotloop.simplify.judge import judge
from hotloop.simplify.phased import LONGEST_PHASE_S, OWN_S, PhaseOfLoop, budgets, combined
from hotloop.simplify.saved_run import judge_run
from hotloop.simplify.verdict import Verdict
from hotloop.simplify.verdict_rows import Group, Rest

ROLLOUT = PhaseOfLoop("act, env step", share=0.6, times=100)
UPDATE = PhaseOfLoop("forward, backward", share=0.3, times=10)


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    """The verdict of a real experiment, whose figures are then replaced by planted ones."""
    step = hotloop.stage("env step", lambda: time.sleep(0.001) or 1, effect="pure")
    act = hotloop.stage("act", lambda: 1, effect="pure")

    def body() -> int:
        act()
        step()
        return 4

    result = hotloop.run_simplify(hotloop.Loop(body, unit="env steps"), budget=2)
    return judge(result.record, "planted", 0.03)


def planted(verdict: Verdict, gains: dict[str, Interval | Unknown], **others: object) -> Verdict:
    rows = []
    for name, gain in gains.items():
        like = verdict.rows[0]
        rows.append(
            dataclasses.replace(
                like,
                name=name,
                inside=None,
                gain=gain,
                p_adjusted=0.001,
                share=0.5,
                faster={2.0: gain},
                calls_per_iteration=1.0,
                ns_per_iteration=10.0,
            )
        )
    return dataclasses.replace(verdict, rows=rows, refused=None, **others)


@pytest.mark.long
def test_a_gain_counts_with_the_phases_part_of_the_time(verdict: Verdict) -> None:
    rollout = planted(verdict, {"env step": Interval(0.5, 0.4, 0.6)}, units_per_iteration=8.0)
    update = planted(verdict, {"backward": Interval(0.2, 0.1, 0.3)}, units_per_iteration=0.0)
    found = combined([ROLLOUT, UPDATE], [rollout, update], 0.03)
    by_name = {row.name: row for row in found.rows}
    gain = by_name["env step"].gain
    assert isinstance(gain, Interval)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.3, 0.24, 0.36))
    assert by_name["env step"].calls_per_iteration == pytest.approx(100)
    assert by_name["backward"].gain.value == pytest.approx(0.06)
    assert found.units_per_iteration == pytest.approx(800)
    assert found.fix is not None
    assert found.fix.name == "env step"
    assert isinstance(found.ladder, Unknown)


def test_a_stage_of_two_phases_gains_in_both(verdict: Verdict) -> None:
    one = planted(verdict, {"act": Interval(0.5, 0.4, 0.6)})
    two = planted(verdict, {"act": Interval(0.1, 0.0, 0.2)})
    found = combined([ROLLOUT, UPDATE], [one, two], 0.03)
    gain = found.rows[0].gain
    assert isinstance(gain, Interval)
    assert gain.value == pytest.approx(0.6 * 0.5 + 0.3 * 0.1)
    # Independent errors: the root of the sum of their squares.
    assert gain.high - gain.value == pytest.approx((0.06**2 + 0.03**2) ** 0.5)


def test_a_part_of_the_loop_counts_in_the_phases_that_have_it(verdict: Verdict) -> None:
    part = Group("update", ("backward", "optimiser step"), Interval(0.8, 0.7, 0.9), 0.01)
    one = planted(verdict, {"act": Interval(0.5, 0.4, 0.6)}, groups=[])
    two = planted(verdict, {"backward": Interval(0.1, 0.0, 0.2)}, groups=[part])
    (found,) = combined([ROLLOUT, UPDATE], [one, two], 0.03).groups
    assert found.stages == part.stages
    assert found.gain.value == pytest.approx(0.3 * 0.8)


def test_the_rest_is_that_of_all_phases_and_what_is_between_them(verdict: Verdict) -> None:
    one = planted(
        verdict, {"act": Interval(0.5, 0.4, 0.6)}, rest=Rest(0.5, Interval(0.4, 0.3, 0.5))
    )
    two = planted(verdict, {}, rest=Rest(0.2, Interval(0.3, 0.2, 0.4)))
    rest = combined([ROLLOUT, UPDATE], [one, two], 0.03).rest
    assert rest.share == pytest.approx(0.6 * 0.5 + 0.3 * 0.2 + 0.1)
    assert rest.left.value == pytest.approx(0.6 * 0.4 + 0.3 * 0.3 + 0.1)


def test_what_one_phase_does_not_know_is_not_known(verdict: Verdict) -> None:
    one = planted(verdict, {"act": Interval(0.5, 0.4, 0.6)})
    two = planted(verdict, {"act": Unknown("too few rounds")})
    found = combined([ROLLOUT, UPDATE], [one, two], 0.03)
    assert isinstance(found.rows[0].gain, Unknown)


def test_a_large_phase_without_a_verdict_refuses_the_whole(verdict: Verdict) -> None:
    one = dataclasses.replace(
        planted(verdict, {"act": Interval(0.5, 0.4, 0.6)}), refused="restless"
    )
    two = planted(verdict, {"backward": Interval(0.5, 0.4, 0.6)})
    found = combined([ROLLOUT, UPDATE], [one, two], 0.03)
    assert found.refused == "act, env step: restless"
    assert found.fix is None
    small = dataclasses.replace(ROLLOUT, share=0.1)
    assert combined([small, UPDATE], [one, two], 0.03).refused is None


def test_what_passes_while_a_conductor_is_paused_is_left_out() -> None:
    control = process_control()
    blocks: list[Block] = []

    def measurement() -> Measurement[None]:
        blocks.append((yield Request(Arm("a", rest=REAL), iterations=4)))

    conductor = Conductor(measurement(), control, name="test", unit="iterations")
    conductor.begin()
    conductor.boundary(1)
    conductor.boundary(1)
    conductor.pause()
    conductor.pause()  # a second one changes nothing
    time.sleep(0.2)
    conductor.resume()
    conductor.boundary(1)
    conductor.boundary(1)
    assert conductor.finished
    (block,) = blocks
    assert len(block.duration_ns) == 4
    assert sum(block.duration_ns) < 150_000_000
    assert block.wall_ns < 150_000_000


@pytest.mark.slow
def test_a_script_with_long_iterations_is_measured_by_its_phases(tmp_path) -> None:
    (tmp_path / "long.py").write_text(
        "import time, torch, gymnasium\n"
        "from torch import nn\n"
        "env = gymnasium.make('CartPole-v1'); env.reset(seed=1)\n"
        "policy = nn.Linear(4, 2); optimiser = torch.optim.SGD(policy.parameters(), 1e-3)\n"
        "x = torch.zeros(16, 4)\n"
        "while True:\n"
        "    for _ in range(100):\n"
        "        with torch.no_grad():\n"
        "            policy(x[:1])\n"
        "        time.sleep(0.002)\n"
        "        if env.step(0)[2]:\n"
        "            env.reset()\n"
        "    for _ in range(20):\n"
        "        optimiser.zero_grad(); policy(x).sum().backward(); optimiser.step()\n"
        "        time.sleep(0.004)\n"
    )
    result = hotloop.run_simplify(str(tmp_path / "long.py"), budget=8)
    phases = result.run.facts["phases"]
    assert len(phases) == 2
    assert sum(phase["share"] for phase in phases) > 0.7
    verdict = result.verdict
    assert verdict.units_per_iteration == pytest.approx(100, rel=0.2)
    names = {row.name for row in verdict.rows}
    assert names >= {"act", "env step", "forward + backward", "optimiser step"}
    result.run.save(tmp_path / "long.run")
    again, _ = judge_run(load(tmp_path / "long.run"))
    assert [row.gain for row in again.rows] == [row.gain for row in verdict.rows]


def test_a_rare_phase_gets_the_time_that_it_needs_where_no_budget_was_given() -> None:
    often, rare = (PhaseOfLoop("", share=share, times=1) for share in (0.81, 0.09))
    given = budgets([often, rare], 60.0)
    assert given == pytest.approx([45.0, 15.0])  # as the roots of their shares
    free = budgets([often, rare], 60.0, may_take=270.0)
    assert free == pytest.approx([45.0, OWN_S / 0.09])
    assert budgets([often, PhaseOfLoop("", 0.06, 1)], 60.0, 270.0)[1] == LONGEST_PHASE_S
    assert budgets([often, PhaseOfLoop("", 0.01, 1)], 60.0, 270.0) == pytest.approx([54.0, 6.0])
    assert sum(budgets([rare] * 5, 60.0, may_take=100.0)) == pytest.approx(100.0)
