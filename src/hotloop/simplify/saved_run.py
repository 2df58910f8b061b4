"""An experiment as it is saved, and judged when it is read."""

from dataclasses import asdict, replace
from typing import Any

from hotloop.benchmark.ranks import ranks_of, ranks_warnings
from hotloop.errors import RunError
from hotloop.loop.run import Run
from hotloop.simplify.judge import judge
from hotloop.simplify.phased import PhasedExperiment, PhaseOfLoop, combined
from hotloop.simplify.record import Record
from hotloop.simplify.verdict import Verdict


def judge_run(run: Run) -> tuple[Verdict, Record]:
    """Judge a saved run; the record is that of the phase with most of the time, where it has some.

    Raises: RunError if it is no experiment, or is incomplete.
    """
    if run.verb != "simplify":
        raise RunError(f"a {run.verb} run of {run.target} has no experiment in it")
    try:
        record = Record.from_run(run.facts, run.arrays)
        phases = phases_in(run)
    except (KeyError, TypeError) as error:
        raise RunError(
            f"the run of {run.target} lacks what this version reads ({error}); measure it again"
        ) from None
    settings: dict[str, Any] = run.settings
    how = (run.target, settings["worth"], settings["seed"], run.complete)
    if phases:
        verdicts = [judge(each, *how) for _, each in phases]
        return combined([phase for phase, _ in phases], verdicts, settings["worth"]), record
    verdict, ranks = judge(record, *how), ranks_of(run)
    warnings = [*verdict.warnings, *ranks_warnings(ranks)]
    return replace(verdict, ranks=ranks, warnings=warnings), record


def with_phases(run: Run, experiment: PhasedExperiment) -> Run:
    """Return a run that holds what was found in every phase."""
    pairs = list(zip(experiment.phases, experiment.records, strict=True))
    facts = [asdict(phase) | {"facts": record.facts()} for phase, record in pairs]
    arrays = {
        f"phase {number} {name}": array
        for number, (_, record) in enumerate(pairs)
        for name, array in record.arrays().items()
    }
    return replace(run, facts=run.facts | {"phases": facts}, arrays=run.arrays | arrays)


def phases_in(run: Run) -> list[tuple[PhaseOfLoop, Record]]:
    """Return the phases of a saved run and what was found in each; empty if it has none."""
    found = []
    for number, each in enumerate(run.facts.get("phases", ())):
        start = f"phase {number} "
        arrays = {n.removeprefix(start): a for n, a in run.arrays.items() if n.startswith(start)}
        phase = PhaseOfLoop(each["description"], each["share"], each["times"])
        found.append((phase, Record.from_run(each["facts"], arrays)))
    return found
