"""Verdicts on records that are known by construction: ties, doubts, unknown gains."""

import io

import numpy as np
import pytest
from rich.console import Console

from hotloop.benchmark.warmup import WarmUp
from hotloop.errors import SettingError
from hotloop.loop.arm import FREE, Arm
from hotloop.loop.figures import Interval
from hotloop.report import statements
from hotloop.report.simplify import headline, verdict_table
from hotloop.simplify.arm_names import BASELINE, aa_name, free_name
from hotloop.simplify.judge import judge
from hotloop.simplify.record import Record
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.stage_facts import Place, StageFacts
from hotloop.simplify.verdict import Verdict
from support.stages import MS, stage_facts


def record_of(
    times_ms: dict[str, float], stages: list[StageFacts], noise: float = 0.002, rounds: int = 24
) -> Record:
    record = Record(warm_up=WarmUp(0.01), seconds=20.0)
    record.stages = stages
    rng = np.random.default_rng(4)
    for name in times_ms:
        replaced = name.removeprefix("free ")
        record.arms[name] = Arm(name, {replaced: FREE} if replaced != name else {})
    for number in range(rounds):
        for k, ms in enumerate(times_ms.values()):
            record.arm_of.append(k)
            record.round_of.append(number)
            record.ns.append(float(50 * ms * MS * rng.normal(1, noise)))
            record.units.append(50.0)
            record.iterations.append(50)
            record.delayed_ns.append(0.0)
            for column in (
                record.cpu_ns,
                record.process_cpu_ns,
                record.stolen_ns,
                record.switches,
                record.pressure_us,
                record.probe_ns,
            ):
                column.append(0)
            each = np.array([50 * stage.ns_per_iteration for stage in stages])
            record.stage_ns.append(each)
            record.running_ns.append(each)
            record.stage_calls.append(np.full(len(stages), 50))
            record.rare_ns.append(np.zeros(0))
            record.rare_events.append(np.zeros(0))
    return record


def same(ms: float = 10.0, **other: float) -> dict[str, float]:
    found = {BASELINE: ms} | {aa_name(k): other.get(f"aa{k}", ms) for k in (1, 2, 3)}
    return found


def answer(verdict: Verdict) -> str:
    return " ".join(headline(verdict))


def test_stages_that_gain_the_same_are_called_a_tie() -> None:
    stages = [stage_facts("left", 0, 4.0), stage_facts("right", 1, 4.0), stage_facts("log", 2, 1.0)]
    times = same() | {free_name("left"): 6.0, free_name("right"): 6.001, free_name("log"): 9.0}
    verdict = judge(record_of(times, stages, noise=0.01), "tie", 0.03)
    assert {verdict.fix.name, *verdict.ties} == {"left", "right"}  # type: ignore[union-attr]
    assert "A tie" in answer(verdict)


def test_a_stage_that_was_replaced_too_seldom_is_not_called_unreplaceable() -> None:
    stages = [stage_facts("left", 0, 4.0), stage_facts("fixed", 1, 4.0, not_replaced="it waits")]
    verdict = judge(record_of(same() | {free_name("left"): 6.0}, stages, rounds=3), "", 0.03)
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(verdict_table(verdict))
    left, fixed = (
        line for line in console.export_text().splitlines() if line.startswith(("left", "fixed"))
    )
    assert "too few rounds" in left
    assert "not replaced" not in left
    assert "not replaced (it waits)" in fixed


def test_stages_that_gain_differently_are_no_tie() -> None:
    stages = [stage_facts("left", 0, 4.0), stage_facts("right", 1, 3.0)]
    times = same() | {free_name("left"): 6.0, free_name("right"): 7.0}
    verdict = judge(record_of(times, stages), "no tie", 0.03)
    assert verdict.fix is not None
    assert verdict.ties == []


def test_where_nothing_could_be_replaced_nothing_is_known() -> None:
    stages = [stage_facts("collect", 0, 8.5, not_replaced="effectful: delayed, never replaced")]
    verdict = judge(record_of(same(), stages), "effectful", 0.03)
    assert verdict.fix is None
    assert verdict.unknown == ["collect"]
    text = answer(verdict)
    assert "not known: no stage could be replaced" in text
    assert "effectful" in text
    assert "no stage alone" not in text


@pytest.mark.parametrize(
    ("waits_ms", "said"),
    [
        (8.0, "queue was delayed only, and has 80.0% of the time"),
        (1.0, "80.0% of the time is between"),
    ],
)
def test_where_nothing_gains_it_is_said_where_the_time_is(waits_ms: float, said: str) -> None:
    waits = stage_facts("queue", 1, waits_ms, not_replaced="effectful: delayed, never replaced")
    stages = [stage_facts("act", 0, 1.0), waits]
    verdict = judge(record_of(same() | {free_name("act"): 9.99}, stages), "elsewhere", 0.03)
    assert verdict.fix is None
    text = "".join(str(getattr(word, "text", word)) for word in statements.fix(verdict))
    assert said in text


def test_what_is_left_where_something_is_never_replaced_is_not_called_no_stage_s() -> None:
    waits = stage_facts("queue", 1, 8.0, not_replaced="effectful: delayed, never replaced")
    stages = [stage_facts("act", 0, 1.0), waits]
    verdict = judge(record_of(same() | {free_name("act"): 9.0}, stages), "kept", 0.03)
    (remark,) = statements.remarks(verdict)
    assert "queue, which is delayed only, has 80.0%" in remark
    assert "no stage can gain it" not in remark


def test_unknown_gains_stand_beside_known_ones() -> None:
    saved = stage_facts("save", 1, 3.0, not_replaced="its output is a generator")
    stages = [stage_facts("act", 0, 5.0), saved]
    times = same() | {free_name("act"): 5.0}
    verdict = judge(record_of(times, stages), "partly", 0.03)
    unknown = statements.unknown(verdict)
    assert unknown is not None
    assert any("its output is a generator" in str(word) for word in unknown)


# --- arms in which nothing is changed ------------------------------------------------------------


def test_a_small_known_difference_of_equal_arms_widens_and_does_not_refuse() -> None:
    """−0.3% with a tight interval: less than a third of what is worth knowing."""
    stages = [stage_facts("act", 0, 7.0)]
    times = same(aa2=10.04) | {free_name("act"): 3.0}
    verdict = judge(record_of(times, stages, noise=0.0005), "precise", 0.03)
    assert verdict.refused is None
    assert verdict.aa.shift > 0.002
    gain = verdict.rows[0].gain
    assert isinstance(gain, Interval)
    assert gain.half_width >= verdict.aa.shift
    assert 0.7 in Interval(gain.value, gain.low, gain.high)


@pytest.mark.parametrize("rounds", [12, 48, 192])
def test_more_rounds_never_refuse_what_fewer_do_not(rounds: int) -> None:
    stages = [stage_facts("act", 0, 7.0)]
    times = same(aa2=10.04) | {free_name("act"): 3.0}
    verdict = judge(record_of(times, stages, noise=0.003, rounds=rounds), "longer", 0.03)
    assert verdict.refused is None


def test_a_large_difference_of_equal_arms_refuses_and_says_how_long_it_would_take() -> None:
    stages = [stage_facts("act", 0, 7.0)]
    times = same(aa2=10.6) | {free_name("act"): 3.0}
    verdict = judge(record_of(times, stages), "restless", 0.03)
    assert verdict.refused is not None
    assert "more minutes" in verdict.refused
    assert verdict.fix is None


@pytest.mark.parametrize("stall", [40.0, 1e12])
def test_equal_arms_that_a_single_stall_makes_unlike_are_refused(stall: float) -> None:
    """0 lies within the interval, but nothing is known: all gains seem to be large, or none."""
    stages = [stage_facts("act", 0, 7.0)]
    record = record_of(same() | {free_name("act"): 3.0}, stages)
    assert judge(record, "still", 0.03).refused is None
    first = record.arm_of.index(list(record.arms).index(BASELINE))
    record.ns[first] *= stall
    verdict = judge(record, "stalled", 0.03)
    assert verdict.refused is not None
    assert "not known within 50%" in verdict.refused
    assert "more minutes" in verdict.refused
    assert verdict.fix is None


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"faster": (1.0,)},
        {"faster": (0.5,)},
        {"faster": (2.0, 2.0)},
        {"faster": (float("nan"),)},
        {"tape_memory": 0.0},
        {"tape_memory": 1.5},
        {"budget": -1.0},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        SimplifySettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sampled_of", "share"),
    [(0.25, 0.48), (None, 0.2)],
    ids=["of the timed stages", "of samples alone"],
)
def test_code_between_the_stages_has_its_share_as_the_rounds_have_it(
    sampled_of: float | None, share: float
) -> None:
    """A busy machine can lengthen the stages while they are first timed: 25% was between them."""
    record = record_of(same(), [stage_facts("act", 0, 4.0)])
    record.rest_places = [Place(0.2, "prepare", "loop.py", 3, calls_stages=False, stage=None)]
    record.rest_share_when_sampled = sampled_of
    (place,) = judge(record, "", 0.03).rest_places
    assert place.share == pytest.approx(share, rel=0.01)
    saved = Record.from_run(record.facts(), record.arrays())
    assert judge(saved, "", 0.03).rest_places == [place]
