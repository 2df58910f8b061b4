"""The runner of a model: from its first state, through its substeps, to a record of the run.

One file because its methods share the order in which a step changes state, record and program.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from hotloop.errors import RunnerError, SettingError, SubstepError
from hotloop.loop.stage import stage
from hotloop.loop.stage_types import StageKind
from hotloop.sim.gradient_window import GradientWindow
from hotloop.sim.graph import CapturedSteps
from hotloop.sim.initialise import first_state, restart
from hotloop.sim.model import Model
from hotloop.sim.parameters import Initializer, Parameters
from hotloop.sim.program import Differentiator, Parts, Program
from hotloop.sim.record import Record, Recorder
from hotloop.sim.settings import Settings
from hotloop.sim.state import State, StateView
from hotloop.sim.stats import Stats, report
from hotloop.sim.step_gradient import StepGradient
from hotloop.sim.substep import check_results
from hotloop.sim.threads import torch_threads
from hotloop.sim.traffic import Traffic
from hotloop.sim.trajectory import Trajectory


class Runner:
    """Steps one model: `init`, then `step(n)` as often as wanted, `reset` to start over.

    A step runs in one of two ways, which mean the same: its substeps one by one, or a program
    instead (the model's own, or a captured graph of the substeps). Where a parameter requires a
    gradient, the substeps are differentiated as they are, unless the model has a differentiator,
    which gives the counts of any run their gradient.

    load: returns the population's data, or None; called by `init`.
    num_steps: steps of an episode (T).
    """

    def __init__(
        self,
        model: Model,
        settings: Settings,
        *,
        load: Callable[[], Any] = lambda: None,
        record: Record | None = None,
        num_steps: int | None = None,
    ) -> None:
        self.model, self.settings = model, settings
        self.record = record or Record()
        self.num_steps = num_steps or model.num_steps_per_episode
        self._load = load
        self._traffic, self._stats = Traffic(), Stats(settings.device)
        self.substeps = [copy.deepcopy(substep) for substep in model.substeps]
        self._parameters = Parameters(self.substeps, settings, self._traffic)
        self.initializer = Initializer(self.substeps, self.set_parameters)
        self.program: Program | None = None
        self._state: State | None = None
        self._broken = ""  # why the state is neither before nor after a step
        self._touched = False  # whether the present step has changed the state

    # --- running ----------------------------------------------------------------------

    def init(self) -> None:
        """Load, check, and move everything to the device, once. Called again, it is `reset`.

        Raises: ConfigError for data that do not fit the model, CapacityError for too many.
        """
        if self._state is not None:
            self.reset()
            return
        self._data = self._load()
        state = first_state(
            self.model,
            self._data,
            self.settings,
            record=self.record,
            num_steps=self.num_steps,
            traffic=self._traffic,
        )
        self._views = [StateView(state, s.reads, s.name) for s in self.substeps]
        self._parts = parts = Parts(state, self.substeps, self.settings)
        make = self.model.gradient if self.settings.gradient is not False else None
        window = GradientWindow(state, make(parts) if make is not None else None)
        self._gradient = StepGradient(parts, window, self._parameters, self.model.name)
        kind: StageKind = "gpu" if self.settings.device.type == "cuda" else "cpu"
        self._stages = [
            stage(s.name, partial(self._substep, i), kind=kind, effect="stateful")
            for i, s in enumerate(self.substeps)
        ]
        self._state = state
        self._make_program()
        try:
            self._refuse_idle_settings()
        except SettingError:
            self.close()
            self._state = None
            raise
        self._start_record()

    def step(self, num_steps: int = 1) -> None:
        """Do the next steps of the episode.

        Raises: RunnerError before `init`, beyond the episode's end, and after a step that was
        broken off; SubstepError for a substep that does not keep to its declaration.
        """
        state, start = self.state, time.perf_counter()
        self._refuse_impossible(num_steps)
        gradient = self._gradient
        with_gradient = gradient.is_wanted
        keeps_graph = with_gradient and not gradient.window.can_attach
        if keeps_graph:
            gradient.refuse_lost()
        with torch.set_grad_enabled(keeps_graph):
            (gradient.window.begin if with_gradient else gradient.window.end)()
            state.renew_step_index()
            if self.program is None or keeps_graph:
                note = gradient.noted_decisions(self.get_state, self.set_state)
                with torch_threads(self.settings.threads), note if keeps_graph else nullcontext():
                    self._run_substeps(num_steps)
            else:
                self._run_program(num_steps)
        if with_gradient:
            gradient.window.attach()
        if keeps_graph:
            gradient.warn_of_lost()
        self._stats.seconds += time.perf_counter() - start
        self._stats.steps += num_steps
        runs = self.settings.replicates or 1
        self._stats.agent_steps += num_steps * runs * sum(state.sizes.values())

    def reset(self, seeds: int | Sequence[int] | None = None) -> None:
        """Return to the first state; parameters stay. A trajectory taken before stays as it was.

        seeds: of the episode to come, one for each replicate; None keeps them.

        Raises: SettingError for another number of seeds.
        """
        state = self.state
        others = None if seeds is None else self._checked_seeds(seeds)
        self._stats.count_snapshots(self._recorder)
        self._recorder.freeze()
        with torch.no_grad():
            if others is None:
                state.reset()
            else:
                state.seeds.copy_(others)
                restart(self.model, self._data, state)
                self._seeds_changed()
        self._state_was_put_back()
        self._start_record()

    reset_state = reset

    def close(self) -> None:
        """End threads and free what the program holds; the record stays readable."""
        if self.program is not None:
            self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- its parts -------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state as it is now.

        Raises: RunnerError before `init`.
        """
        if self._state is None:
            raise RunnerError("the runner has no state yet; call runner.init() first")
        return self._state

    @property
    def state_trajectory(self) -> Trajectory:
        """[[start], one list a step of one snapshot a substep], as far as the record keeps it."""
        if self._state is None:
            raise RunnerError("the runner has no trajectory yet; call runner.init() first")
        return self._trajectory

    @property
    def device(self) -> torch.device:
        """Where the state lives; create tensors there."""
        return self.settings.device

    @property
    def differentiator(self) -> Differentiator | None:
        """What gives counts their gradient; None where the substeps are differentiated.

        Raises: RunnerError before `init`.
        """
        return None if self.state is None else self._gradient.window.differentiator

    @property
    def config(self) -> dict[str, Any]:
        """The settings of model and run, nested and plain."""
        agents = None if self._state is None else sum(self._state.sizes.values())
        return self.model.describe(
            num_steps_per_episode=self.num_steps,
            num_agents=agents,
            device=str(self.device),
            seed=self.settings.seed,
            replicates=self.settings.replicates,
        )

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over path and tensor of every parameter; the tensors themselves, not copies."""
        return iter(self._parameters)

    def parameters(self) -> Iterator[Tensor]:
        """The values of `named_parameters`, as an optimizer takes them."""
        return (value for _, value in self.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """Copy the parameters by path, for `load_state_dict`; `get_state` copies the rest."""
        return {path: value.detach().clone() for path, value in self.named_parameters()}

    def load_state_dict(self, values: Mapping[str, Tensor]) -> None:
        """Write what `state_dict` gave into the parameters, which stay the same tensors.

        Raises: PathError, ParameterError, see `Parameters.load`.
        """
        self._parameters.load(values)
        self._parameters_changed()

    def set_parameters(self, values: Mapping[str, Tensor]) -> None:
        """Exchange parameters by path; see `Parameters.set`.

        Raises: PathError, ParameterError.
        """
        self._parameters.set(values)
        self._parameters_changed()

    _set_parameters = set_parameters

    def _parameters_changed(self) -> None:
        if self._state is not None:
            self._gradient.window.end()
            if isinstance(self.program, CapturedSteps):
                self.program.forget()

    def set_value(self, path: str, value: Tensor | float) -> None:
        """Set a value of the state between two steps, such as what a policy decides.

        value: of the value's shape, or of one that broadcasts to it. Where it requires a gradient,
        the steps to come are differentiated by it as by a parameter.

        Raises: PathError; SubstepError for a column of agents that no substep writes;
        SettingError for a gradient that the model cannot give.
        """
        wants = isinstance(value, Tensor) and value.requires_grad
        if wants and self.settings.gradient is not False:
            self._gradient.window.refuse_other_than_controls(path)
        with torch.set_grad_enabled(wants and self._gradient.is_allowed):
            self._recorder.before_writing([path], in_place=True)
            self.state.assign(path, value)
            self._recorder.after_change(path)
        if path.startswith("agents/") and self.program is not None:
            self.program.columns_changed()

    def get_performance_stats(self) -> dict[str, Any]:
        """Report its counters since it was made: a flat dict, see `hotloop.sim.stats.report`."""
        recorder = self._recorder if self._state is not None else None
        found = report(self._stats, self._traffic, self.settings, self.program, recorder)
        differentiator = None if self._state is None else self.differentiator
        facts = {} if differentiator is None else differentiator.facts()
        return found | {f"gradient_{name}": value for name, value in facts.items()}

    def get_state(self) -> dict[str, Any]:
        """Copy all that steps change, for `set_state`; parameters are not part of it."""
        return {
            "state": self.state.get_state(),
            "recorder": self._recorder,
            "trajectory": self._trajectory,
            "record": self._recorder.get_state(),
        }

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned, as often as wanted."""
        seeds = self.state.seeds.clone()
        with torch.no_grad():
            self.state.set_state(saved["state"])
        if not torch.equal(seeds, self.state.seeds):
            self._seeds_changed()
        self._recorder: Recorder = saved["recorder"]
        self._trajectory: Trajectory = saved["trajectory"]
        self._recorder.set_state(saved["record"])
        self._state_was_put_back()

    # --- substeps or a program ----------------------------------------------------------------

    def _run_substeps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            with self._guarded():
                self._all_substeps()
            self.state.step += 1
            self._gradient.after_step()

    def _all_substeps(self) -> None:
        for substep, staged in zip(self.substeps, self._stages, strict=True):
            with self._stats.timed(substep.name):
                staged()

    def _substeps_alone(self) -> None:
        """Run all substeps and nothing else: their stages and timers are no part of a graph."""
        for number in range(len(self.substeps)):
            self._substep(number)

    def _substep(self, number: int) -> None:
        """Run one substep, check its results against its declaration, and commit them."""
        substep, view, state = self.substeps[number], self._views[number], self.state
        state.substep = substep.name
        versions = view.versions()
        results = substep.run(view)
        changed = [path for path, version in view.versions().items() if version != versions[path]]
        if changed:
            self._touched = True
            raise SubstepError(
                f"substep {substep.name!r} changed {changed[0]!r} in place; return a new tensor"
            )
        check_results(substep, results, state)
        if not state.counts_on_device:  # a captured step waits as a whole before it starts
            self._recorder.before_writing(substep.writes, in_place=False)
        self._touched = True
        state.commit(results, keep_graph=torch.is_grad_enabled())
        if not state.counts_on_device:
            self._recorder.after_substep(state.step, number)

    def _run_program(self, num_steps: int) -> None:
        """Run all steps in one call of the program, or as many as until the record copies."""
        state = self.state
        if state.settle() and self.program is not None:
            self.program.columns_changed()
        end = state.step + num_steps
        while state.step < end:
            at_once = self._recorder.steps_until_copy(state.step, end - state.step)
            self._recorder.before_writing(list(state.slots), in_place=True)
            with self._guarded(), self._stats.timed("step"):
                self._touched = True
                self._advance(state.step, at_once)
            state.step += at_once
            self._recorder.after_step(state.step - 1)

    def _make_program(self) -> None:
        """Make the program for the present state, if there is one; other seeds need a new one."""
        self.close()
        program, settings = None, self.settings
        if settings.fused and self.model.program is not None:
            program = self.model.program(self._parts)
        if program is None and settings.capture:
            program = CapturedSteps(self.state, self._substeps_alone)
        self.program = program
        if program is not None:
            kind: StageKind = "gpu" if settings.device.type == "cuda" else "cpu"
            self._advance = stage("step", program.advance, kind=kind, effect="stateful")

    def _seeds_changed(self) -> None:
        """Make the program anew, unless it is a graph, which reads the seeds from the state."""
        if not isinstance(self.program, CapturedSteps):
            self._make_program()

    def _refuse_idle_settings(self) -> None:
        """Refuse a setting on which nothing in this run acts."""
        who, acting = "its substeps, which do", list[object](self.substeps)
        if self.program is not None and not isinstance(self.program, CapturedSteps):
            who, acting = f"its program {self.program.name!r}, which does", [self.program]
        name = self.model.name
        self.settings.refuse_idle(name, who, acting, has_estimators=self.model.gradient is not None)

    # --- between steps -------------------------------------------------------------------------

    def _refuse_impossible(self, num_steps: int) -> None:
        done = self.state.step
        if self._broken:
            raise RunnerError(
                f"{self._broken}, and the state is neither before nor after it; "
                "call runner.reset() to start over"
            )
        if num_steps < 1:
            raise RunnerError(f"step: expected 1 step or more, got {num_steps}")
        if done + num_steps > self.num_steps:
            raise RunnerError(
                f"step({num_steps}) would go beyond the episode: num_steps_per_episode is "
                f"{self.num_steps} and {done} are done. Call runner.reset() to start over, or make "
                "episodes longer with Executor(…, num_steps=…)"
            )

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Note whether an error in the block left the state between two steps."""
        self._touched = False
        try:
            yield
        except BaseException as error:
            if self._touched:
                step = self.state["current_step"]
                self._broken = f"step {step} was broken off ({type(error).__name__})"
            raise

    def _checked_seeds(self, seeds: int | Sequence[int]) -> Tensor:
        wanted, given = self.state.seeds.shape, torch.as_tensor(seeds, dtype=torch.int64)
        if given.shape != wanted:
            count = f"{wanted[0]} seeds, one for each replicate" if wanted else "one seed"
            raise SettingError(f"reset: expected {count}; got {seeds!r}")
        return given

    def _start_record(self) -> None:
        writes = [(substep.name, substep.writes) for substep in self.substeps]
        self._recorder = Recorder(self.record, self.state, writes)
        self._trajectory = Trajectory(self._recorder)

    def _state_was_put_back(self) -> None:
        self._broken = ""
        self._gradient.end()
        if self.program is not None:
            self.program.columns_changed()
