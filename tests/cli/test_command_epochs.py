"""Scripts with short epochs, whose stages are made anew in each."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.loop.run import load

pytest.importorskip("torch")


def test_a_loader_wrapped_anew_in_every_epoch_marks_the_iterations(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("benchmark", "epochs.py", "--seconds", "2", "--save", "e.run", cwd=project)
    assert done.code == 0, done.err
    run = load(project / "e.run")
    assert "'load'" in run.facts["iterations_marked_by"]
    assert not run.facts.get("script_ended")
    # One call of each in an iteration: the call that finds an epoch ended is none.
    calls = run.arrays["stage_calls"].sum(axis=0) / len(run.arrays["duration_ns"])
    named = dict(zip([stage["name"] for stage in run.facts["stages"]], calls, strict=True))
    assert named == pytest.approx({"load": 1.0, "train": 1.0}, abs=0.02)


@pytest.mark.slow
def test_its_experiment_ends_within_the_budget(hotloop: Callable, project: Path) -> None:
    done = hotloop("simplify", "epochs.py", "--budget", "3", "--save", "v.run", cwd=project)
    assert "before the experiment did" not in done.err, done.err
    run = load(project / "v.run")
    assert run.complete
    assert run.facts["seconds"] < 20
    assert not (project / "ended").exists()
    assert done.code in (0, 1)


@pytest.mark.slow
def test_epochs_that_end_before_the_experiment_does_are_said_to(
    hotloop: Callable, project: Path
) -> None:
    done = hotloop("simplify", "epochs.py", "--budget", "30", "--", "300", cwd=project)
    assert done.code == 1
    assert (project / "ended").exists()
    assert "ended before" in done.err or "marks no iterations" in done.err
