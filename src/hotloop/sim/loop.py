"""A simulation as a loop to be measured, with its substeps, or its program, as stages."""

from hotloop.errors import SettingError
from hotloop.loop import Loop, stage
from hotloop.sim.executor import Executor
from hotloop.sim.levers import levers_of
from hotloop.sim.runner import Runner


def loop(of: Executor | Runner, *, steps: int | None = None, name: str | None = None) -> Loop:
    """Make a loop whose iteration is `steps` steps, by default an episode.

    An episode's end starts the next, from the same seed. The unit is agent steps, of all
    replicates.

    Raises: SettingError for more steps than an episode has; what `init` raises.
    """
    runner = of.runner if isinstance(of, Executor) else of
    count = steps or runner.num_steps
    if not 1 <= count <= runner.num_steps:
        raise SettingError(
            f"loop: steps: expected 1 to {runner.num_steps}, the steps of an episode, got {steps}"
        )
    runner.init()
    units = count * (runner.settings.replicates or 1) * sum(runner.state.sizes.values())

    reset = stage("reset", runner.reset)  # never replaced: steps need it

    def iterate() -> int:
        if runner.state.step + count > runner.num_steps:
            reset()
        runner.step(count)
        return units

    return Loop(
        body=iterate,
        unit="agent steps",
        name=name or runner.model.name,
        state=[runner],
        close=runner.close,
        levers=levers_of(runner),
        result=lambda: {path: runner.state[path] for path in runner.state},
    )
