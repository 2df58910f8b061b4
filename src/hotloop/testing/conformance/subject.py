"""The env under test, and how a check's outcome becomes a finding."""

import copy
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import gymnasium
from gymnasium.vector import VectorEnv

from hotloop.envs.ids import AnyEnv
from hotloop.errors import expect_positive
from hotloop.testing.conformance.report import Finding, Outcome

AnyVectorEnv = VectorEnv[Any, Any, Any]
E = TypeVar("E", bound=AnyEnv | AnyVectorEnv)


@dataclasses.dataclass(frozen=True)
class ConformanceSettings:
    """How long and how far to look."""

    steps: int = 200
    """Steps of the rollout that most checks look at."""
    max_steps: int = 2000
    """Steps to wait for an episode's end, for what only an end shows."""
    seed: int = 7
    """Seed of the resets and of the actions."""
    misuse: bool = True
    """Whether to step outside of an episode, in a process that may crash; costs its start."""
    timeout_s: float = 60.0
    """How long that process may take, in s."""

    def __post_init__(self) -> None:
        for name in ("steps", "max_steps", "timeout_s"):
            expect_positive(f"ConformanceSettings.{name}", getattr(self, name))


class Broken(Exception):
    """The contract is broken; the message says what was got, and where."""


class Undecided(Exception):
    """The check cannot decide; the message says why."""


class Subject(Generic[E]):
    """The env under test: one that the checks share, and fresh ones for those that need them."""

    def __init__(
        self,
        make: Callable[[], E],
        env: E,
        settings: ConformanceSettings,
        single: Callable[[], AnyEnv] | None = None,
    ) -> None:
        self.make = make
        self.env = env
        self.settings = settings
        self.single = single
        self.problems: dict[str, str] = {}
        """The first problem that the survey met, by the check that it belongs to."""
        self._open: list[AnyEnv | AnyVectorEnv] = [env]

    def fresh(self) -> E:
        """Another env of the same maker, closed at the end."""
        env = self.make()
        self._open.append(env)
        return env

    def fresh_single(self) -> AnyEnv:
        """A plain env of the maker `single`, closed at the end."""
        assert self.single is not None
        env = self.single()
        self._open.append(env)
        return env

    def actions(self, count: int, space: gymnasium.Space[Any] | None = None) -> list[Any]:
        """The same `count` samples of the action space each time."""
        # A copy: an env's own space keeps its generator.
        source = copy.deepcopy(space or self.env.action_space)
        source.seed(self.settings.seed)
        return [source.sample() for _ in range(count)]

    def note(self, check: str, problem: str) -> None:
        """Keep the first problem of `check`."""
        self.problems.setdefault(check, problem)

    def close(self) -> None:
        """Close every env that was made."""
        for env in self._open:
            try:
                env.close()
            except Exception:
                # The check of close() reports it; here it must not hide the report.
                continue


@dataclasses.dataclass(frozen=True)
class Check(Generic[E]):
    """One sentence of the contract and what tests it.

    `test` raises `Broken` or `Undecided`; None: the survey's problem under this name is the result.
    """

    name: str
    expected: str
    advice: str
    test: Callable[[Subject[E]], None] | None = None
    needs: tuple[str, ...] = ()
    """Checks that must have passed for this one to mean anything."""
    only_warns: bool = False


def findings(subject: Subject[E], checks: Sequence[Check[E]]) -> tuple[Finding, ...]:
    """Every check's finding, in order."""
    found: dict[str, Finding] = {}
    for check in checks:
        found[check.name] = _finding(subject, check, found)
    return tuple(found.values())


def _finding(subject: Subject[E], check: Check[E], found: dict[str, Finding]) -> Finding:
    missing = [name for name in check.needs if found[name].outcome in ("failed", "skipped")]
    if missing:
        return Finding(check.name, "skipped", check.expected, f"needs {', '.join(missing)}")
    try:
        if check.test is not None:
            check.test(subject)
        elif check.name in subject.problems:
            raise Broken(subject.problems[check.name])
    except Undecided as reason:
        return Finding(check.name, "skipped", check.expected, str(reason))
    except Broken as broken:
        got = str(broken)
    except Exception as error:
        # Any error of an env is a finding, never the end of the report.
        got = raised(error)
    else:
        return Finding(check.name, "passed", check.expected)
    outcome: Outcome = "warning" if check.only_warns else "failed"
    return Finding(check.name, outcome, check.expected, got, check.advice)


def raised(error: Exception) -> str:
    """An exception in one line."""
    # Without the colours that Gymnasium puts into its messages.
    text = " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
