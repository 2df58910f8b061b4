"""What may be tried on a simulation: the settings of its executor that change how fast it runs."""

from collections.abc import Sequence
from dataclasses import replace

from hotloop.loop.host import whole_cores
from hotloop.loop.lever import Lever, Options
from hotloop.sim.graph import CapturedSteps
from hotloop.sim.runner import Runner
from hotloop.sim.settings import Settings

SNAPSHOT_STEPS = (1, 10, 100)


def levers_of(runner: Runner) -> Sequence[Lever]:
    """The levers of a run, after `Runner.init`."""
    snapshots = _snapshots(runner)
    if runner.settings.device.type != "cpu":
        return [*_capture(runner), *snapshots]
    return [*_of_programs(runner), _threads(runner.settings), *snapshots]


def _threads(settings: Settings) -> Lever:
    cores = whole_cores()
    now = cores if settings.threads is None else settings.threads
    return Lever(
        "threads",
        range(1, cores + 1),
        now,
        about="threads that step the agents",
        risk="fewer cores for what runs beside it",
        missing="more than one core" if (cores, now) == (1, 1) else "",
    )


def _of_programs(runner: Runner) -> list[Lever]:
    """What a compiled program acts on, where the model has one for its settings."""
    settings, program = runner.settings, runner.program
    if runner.model.program is None or (settings.fused and program is None):
        return []

    def is_fused(options: Options) -> bool:
        return bool(options.get("fused", settings.fused))

    fused = Lever(
        "fused",
        (False, True),
        settings.fused,
        about="one compiled program in place of the substeps",
        risk="compiles for seconds, once a machine",
    )
    active_set = Lever(
        "active_set",
        (False, "auto"),
        settings.active_set,
        applies=is_fused,
        about="visits the agents that may change, not all",
        area="memory",
    )
    precision = Lever(
        "precision",
        ("double", "mixed"),
        settings.precision,
        applies=is_fused,
        keeps_result=False,
        about="the number format of sums and rates",
        area="memory",
        risk="draws that fall on the other side of a threshold",
    )
    # What a program acts on is known once it was made.
    acts_on = None if program is None else getattr(program, "acts_on", frozenset[str]())
    of_program = [
        each for each in (active_set, precision) if acts_on is None or each.name in acts_on
    ]
    return [fused, *of_program]


def _capture(runner: Runner) -> list[Lever]:
    """On a card: a graph of the substeps, where no program runs in their place."""
    if runner.program is not None and not isinstance(runner.program, CapturedSteps):
        return []
    return [
        Lever(
            "capture",
            (False, True),
            runner.settings.capture,
            about="a step of the substeps as one graph of CUDA",
            risk="the memory of the graph",
        )
    ]


def _snapshots(runner: Runner) -> list[Lever]:
    """How often the record copies what substeps write; nothing for series, which are no copies."""
    written = {path for substep in runner.substeps for path in substep.writes}
    copied = [path for path in written if runner.record.keeps(path)]
    if all(runner.state.slots[path].is_series for path in copied):
        return []

    def set_every(steps: int) -> None:
        runner.record = replace(runner.record, every=steps)
        if runner.state.step == 0:  # else the next episode is recorded so
            runner.reset()

    return [
        Lever(
            "snapshot_steps",
            SNAPSHOT_STEPS,
            runner.record.every,
            apply=set_every,
            about="steps from one snapshot of the record to the next",
            area="memory",
            risk="the trajectory has no snapshots of the steps between",
        )
    ]
