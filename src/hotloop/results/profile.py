"""Profiles, for Python and for the command: the measurement and its result."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hotloop.errors import LoopError
from hotloop.loop.chosen import Chosen
from hotloop.loop.control import process_control
from hotloop.loop.loop import Loop
from hotloop.loop.run import Run
from hotloop.loop.target import settings_of
from hotloop.profile.flame import write_speedscope
from hotloop.profile.profile import Profile, ProfileRecord
from hotloop.profile.saved import to_saved
from hotloop.profile.settings import ProfileSettings
from hotloop.profile.stacks import Stacks
from hotloop.recognise.settings import RecogniseSettings
from hotloop.report.profile import PROFILE, Profiles
from hotloop.results.ranks import expect_one_process
from hotloop.results.result import Ending, Result, View
from hotloop.results.session import Announce, recognised_start, run_target
from hotloop.results.signature import taken_from, takes_settings
from hotloop.results.targets import target_name


class ProfileResult(Result[Profiles]):
    """Where a loop's time, memory, arithmetic and bytes go."""

    kind = PROFILE

    def __init__(self, run: Run, stacks: Stacks | None = None) -> None:
        super().__init__(run)
        self._stacks = stacks

    @property
    def profiles(self) -> dict[str, Any]:
        """What was found, by what was asked for: time, memory, model, network."""
        return self.found.found

    def write_speedscope(self, path: Path | str) -> bool:
        """Write the stacks that were sampled for speedscope.app; False if none were."""
        if self._stacks is None:
            return False
        write_speedscope(self._stacks, Path(path), self.run.target)
        return True


@takes_settings(ProfileSettings, RecogniseSettings)
def run_profile(
    loop: Loop | str,
    *,
    arguments: Sequence[str] = (),
    only: str | None = None,
    **settings: Any,
) -> ProfileResult:
    """Profile a loop with the field's own profilers, joined to its stages.

    loop: a `hotloop.Loop`, which is not closed; or a target as the command line takes it.
    arguments: of a script. only: the stage to look at; None: all. The settings are the fields of
    `ProfileSettings`, at least one of time, memory, model and network, and of
    `RecogniseSettings` for a script as it stands.

    Raises: SettingError for a setting that is unknown or out of range; StageError for a stage that
    is not there; TargetError; LoopError; errors of the loop itself, and KeyboardInterrupt. If
    something was found before, it is the attribute `result` of the exception.
    """
    recognise = taken_from(settings, RecogniseSettings)
    chosen: ProfileSettings = settings_of(ProfileSettings, settings)
    return measure_profile(
        loop, chosen, only=only, arguments=arguments, recognise=recognise
    ).completed()


def measure_profile(
    target: Loop | str,
    settings: ProfileSettings,
    *,
    only: str | None = None,
    arguments: Sequence[str] = (),
    chosen: Chosen | None = None,
    recognise: RecogniseSettings | None = None,
    announce: Announce | None = None,
    view: View | None = None,
) -> Ending[ProfileResult]:
    """Profile a target; an error is part of what is returned.

    only: the stage to look at. chosen: settings of the target, and options of its levers.
    recognise: how the parts of a script are found. announce: called with what is said before such
    a script starts. view: shows the progress.
    """
    settings.expect_aspects()
    expect_one_process(target, "profile")
    control = process_control()
    profile = Profile(control, settings, only)
    start, wanted_s = control.clock.now_ns(), settings.seconds * len(settings.aspects)

    def progress() -> float:
        return (control.clock.now_ns() - start) * 1e-9 / wanted_s

    with nullcontext() if view is None else view(progress) as observer:
        outcome = run_target(
            target,
            profile.run,
            arguments=arguments,
            chosen=chosen,
            recognise=recognise,
            announce=announce,
            observer=observer,
            start_limits=lambda _has_stages: recognised_start(wanted_s),
        )
    name, record = target_name(target), profile.record
    if outcome.facts.get("script_ended") and outcome.error is None:
        outcome.error = LoopError(
            f"{name} ended before all of it was profiled: let it run longer, or ask for less with "
            "--seconds"
        )
    if outcome.facts.get("no_iterations") and outcome.error is None:
        outcome.error = LoopError(f"{name}: {outcome.facts['no_iterations']}")
    run = Run(
        verb="profile",
        target=name,
        settings=dataclasses.asdict(settings),
        facts=_facts(record, only) | outcome.facts,
        complete=outcome.error is None,
    )
    return Ending(ProfileResult(run, record.stacks), outcome.error)


def _facts(record: ProfileRecord, only: str | None) -> dict[str, Any]:
    return {
        "stage": only,
        "stages": [{"name": name} for name in record.stages],
        "profiles": {name: to_saved(found) for name, found in record.profiles.items()},
        "not_profiled": record.not_profiled,
    }
