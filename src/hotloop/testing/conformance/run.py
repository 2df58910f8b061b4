"""`check`: choose the checks for an env or a vector env, run them, and report."""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from hotloop.envs.ids import AnyEnv
from hotloop.testing.conformance import env_checks, vector_checks
from hotloop.testing.conformance.report import Finding, Report
from hotloop.testing.conformance.subject import (
    AnyVectorEnv,
    ConformanceSettings,
    Subject,
    findings,
    raised,
)


def check(
    make: Callable[[], AnyEnv | AnyVectorEnv],
    *,
    single: Callable[[], AnyEnv] | None = None,
    settings: ConformanceSettings | None = None,
    raise_on_failure: bool = True,
) -> Report:
    """Test an env, or a vector env of any vendor, against Gymnasium's contract.

    `make` is called several times. With `single`, a maker of the plain env, a vector env must
    also equal plain envs stepped one by one. `raise_on_failure=False` gives the report in any case.
    Raises: TargetError, with the whole report, if a check failed.
    """
    report = _report(make, single, settings or ConformanceSettings())
    if raise_on_failure:
        report.raise_if_failed()
    return report


def _report(
    make: Callable[[], Any],
    single: Callable[[], AnyEnv] | None,
    settings: ConformanceSettings,
) -> Report:
    expected = "the maker returns a gymnasium.Env or a gymnasium.vector.VectorEnv"
    advice = "pass a function without arguments that builds the env"
    try:
        env = make()
    except Exception as error:
        # Any error of a maker is a finding.
        return Report("maker", (Finding("make", "failed", expected, raised(error), advice),))
    # Some vendors' vector envs are both.
    if isinstance(env, VectorEnv):
        return _vector_report(Subject(make, env, settings, single))
    if isinstance(env, gymnasium.Env):
        return _env_report(Subject(make, env, settings))
    got = f"{type(env).__name__} {env!r}"
    return Report("maker", (Finding("make", "failed", expected, got, advice),))


def _env_report(subject: Subject[AnyEnv]) -> Report:
    try:
        env_checks.survey(subject)
        spec = subject.env.spec
        name = type(subject.env.unwrapped).__name__ if spec is None else spec.id
        return Report(name, findings(subject, env_checks.CHECKS))
    finally:
        subject.close()


def _vector_report(subject: Subject[AnyVectorEnv]) -> Report:
    try:
        vector_checks.survey(subject)
        # Not its own text, which is a screenful in some libraries.
        name = f"{type(subject.env).__name__}, {subject.env.num_envs} envs"
        return Report(name, findings(subject, vector_checks.CHECKS))
    finally:
        subject.close()
