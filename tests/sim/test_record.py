"""What a trajectory keeps, costs, and promises never to change."""

import pytest
import torch
from tiny_models import AGE, CASES, MOOD, STAGE, STEPS, growth, sir

from hotloop.errors import PathError, RecordError, SettingError
from hotloop.sim import Executor, Record
from hotloop.sim.record import Recorder


def run(steps=STEPS, model=None, **settings):
    runner = Executor(model or sir(), **settings).init()
    runner.step(steps)
    return runner


def test_a_trajectory_has_the_start_and_a_list_a_step() -> None:
    trajectory = run(4).state_trajectory
    assert [len(step) for step in trajectory] == [1, 2, 2, 2, 2]
    assert trajectory[0][0]["current_substep"] == ""
    assert [s["current_substep"] for s in trajectory[-1]] == ["infect", "recover"]
    assert trajectory[-1][-1]["current_step"] == 3
    assert len(trajectory[1:3]) == 2
    with pytest.raises(IndexError):
        trajectory[5]


@pytest.mark.parametrize("replicates", [None, 3])
def test_every_snapshot_is_what_the_state_was(replicates) -> None:
    runner = Executor(sir(), replicates=replicates, record=Record(agents=True)).init()
    was = [{p: runner.state[p].clone() for p in (STAGE, CASES, MOOD)}]
    for _ in range(5):
        runner.step()
        was.append({p: runner.state[p].clone() for p in (STAGE, CASES, MOOD)})
    for step, expected in enumerate(was):
        for path, value in expected.items():
            assert torch.equal(runner.state_trajectory[step][-1][path], value)
    # Between substeps: the first has infected, the second has not yet healed.
    infected, healed = (s[STAGE] for s in runner.state_trajectory[3])
    assert torch.equal(healed != infected, (infected == 1) & (healed == 2))
    assert torch.equal(runner.state_trajectory[3][0][MOOD], was[2][MOOD])
    assert torch.equal(runner.state_trajectory[3][0][CASES], was[3][CASES])


def test_no_snapshot_ever_changes() -> None:
    runner = run(4, record=Record(agents=True))
    trajectory = runner.state_trajectory
    kept = {p: trajectory[-1][-1][p].clone() for p in (STAGE, AGE, CASES, MOOD)}
    trajectory[-1][-1][STAGE].fill_(9)  # what is handed out is the caller's own
    trajectory[-1][-1][AGE].fill_(9)
    trajectory[-1][-1][CASES].fill_(9)
    runner.step(3)
    assert all(torch.equal(trajectory[4][-1][p], kept[p]) for p in kept)
    runner.reset()
    runner.set_parameters({n: p * 0.5 for n, p in runner.named_parameters()})
    runner.step(6)
    assert len(trajectory) == 8
    assert len(runner.state_trajectory) == 7
    assert all(torch.equal(trajectory[4][-1][p], kept[p]) for p in kept)


def test_sums_alone_copy_no_agents() -> None:
    runner = run()
    stats = runner.get_performance_stats()
    assert stats["snapshot_bytes"] <= 8 * (1 + STEPS)  # `mood`, a number that is no series
    with pytest.raises(RecordError, match=r"agents/people/stage' is not kept.*Record\(keep="):
        runner.state_trajectory[-1][-1][STAGE]
    with pytest.raises(PathError, match="did you mean 'environment/cases'"):
        runner.state_trajectory[-1][-1]["environment/cased"]
    assert set(runner.state_trajectory[-1][-1]["environment"]) == {"cases", "mood"}


def test_a_program_is_not_held_up_by_a_record_of_sums() -> None:
    runner = run(10, growth(), replicates=2)
    assert runner.program.calls == [(0, 10)]
    assert runner.get_performance_stats()["snapshots"] == 0
    assert (
        runner.state_trajectory[3][1]["environment/total"].tolist() == [[8, 16, 32] + [0] * 7] * 2
    )


def test_a_program_is_recorded_at_the_end_of_steps() -> None:
    value = "agents/cells/value"
    runner = run(5, growth(), record=Record(keep=(value,)))
    assert runner.program.calls == [(step, 1) for step in range(5)]
    assert runner.state_trajectory[3][-1][value].tolist() == [8] * 4
    assert runner.state_trajectory[0][0][value].tolist() == [1] * 4
    with pytest.raises(RecordError, match=r"end of step 2 only.*fused=False"):
        runner.state_trajectory[3][0][value]
    plain = run(5, growth(), record=Record(keep=(value,)), fused=False)
    assert plain.state_trajectory[3][0][value].tolist() == [8] * 4


def test_snapshots_of_some_steps_in_narrow_numbers() -> None:
    record = Record(keep=(STAGE, MOOD), every=4, dtype={STAGE: torch.int8})
    runner, whole = run(10, record=record), run(10, record=Record(agents=True))
    for step in (0, 4, 8):
        for substep in (0, 1):
            kept = runner.state_trajectory[step + 1][substep]
            expected = whole.state_trajectory[step + 1][substep]
            assert kept[STAGE].dtype == torch.int8
            assert torch.equal(kept[STAGE].int(), expected[STAGE].int())
            assert torch.equal(kept[MOOD], expected[MOOD])
    with pytest.raises(RecordError, match=r"not kept at step 5: Record\(every=4\)"):
        runner.state_trajectory[6][0][STAGE]


def test_gradients_only_where_they_are_wanted() -> None:
    beta = torch.tensor(0.4, requires_grad=True)
    for record, expected in ((Record(), True), (Record(gradient=False), False)):
        runner = Executor(sir(), record=record).init()
        runner.set_parameters({next(iter(dict(runner.named_parameters()))): beta})
        runner.step(3)
        assert runner.state_trajectory[-1][-1][CASES].requires_grad is expected
        kept = runner.state_trajectory
        runner.reset()
        assert kept[-1][-1][CASES].requires_grad is expected
        assert kept[-1][-1][CASES].sum() > 0


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Record(keep="environment"), SettingError, "tuple of paths"),
        (lambda: Record(every=0), SettingError, "at least 1"),
        (lambda: Record(keep=("networks/ties",)), SettingError, "networks do not change"),
        (
            lambda: run(1, record=Record(keep=("agents/peeple",))),
            PathError,
            "has no 'agents/peeple'",
        ),
        (
            lambda: run(1, record=Record(dtype={"agents/people/stag": torch.int8})),
            PathError,
            "mean",
        ),
    ],
)
def test_an_invalid_record_is_refused(make, error, words) -> None:
    with pytest.raises(error, match=words):
        make()


class Log:
    """A fake of a GPU's streams: logs who waited for what."""

    def __init__(self):
        self.events = []
        self.copies = 0

    def copy(self, value, dtype):
        self.copies += 1
        self.events.append(f"copy {self.copies}")
        return value.to(dtype, copy=True), self.copies

    def computing_waits_for(self, mark):
        self.events.append(f"computing waits for {mark}")

    def host_waits_for(self, mark):
        self.events.append(f"host waits for {mark}")


def test_copies_are_over_before_their_memory_is_written_again() -> None:
    runner = Executor(growth(program=False), record=Record(keep=("agents",))).init()
    log = Log()
    writes = [(s.name, s.writes) for s in runner.substeps]
    recorder = runner._recorder = Recorder(runner.record, runner.state, writes, log)
    runner.step()
    # With a spare beside every value, the newest copy may still be under way.
    assert log.events == ["copy 1", "copy 2", "computing waits for 1", "copy 3"]
    recorder.before_writing(["agents/cells/value"], in_place=True)
    assert log.events[4:] == ["computing waits for 3"]  # copies end in their order
    recorder.value("agents/cells/value", 2)
    assert log.events[-1] == "host waits for 3"
