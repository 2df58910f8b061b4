"""The findings of conformance checks, as text."""

import dataclasses
from typing import Literal

from hotloop.errors import TargetError

Outcome = Literal["passed", "failed", "warning", "skipped"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check's outcome."""

    name: str
    outcome: Outcome
    expected: str
    """The contract's sentence."""
    got: str = ""
    """The deviation, and where; of a check that was skipped, the reason."""
    advice: str = ""
    """What to do."""

    @property
    def passed(self) -> bool:
        """False for a failure only: a warning breaks no contract."""
        return self.outcome != "failed"

    def __str__(self) -> str:
        head = f"  {self.outcome:<8} {self.name:<18}"
        if self.outcome == "passed":
            return f"{head} {self.expected}"
        if self.outcome == "skipped":
            return f"{head} {self.got}"
        lines = (("expected", self.expected), ("got", self.got), ("to do", self.advice))
        return "\n".join([head.rstrip(), *(f"{'':11}{name:<9} {text}" for name, text in lines)])


@dataclasses.dataclass(frozen=True)
class Report:
    """Every check's finding; `print` it."""

    target: str
    """The env that was checked."""
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(f for f in self.findings if f.outcome == "failed")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The checks that found something that breaks no contract."""
        return tuple(f for f in self.findings if f.outcome == "warning")

    def raise_if_failed(self) -> None:
        """Raises: TargetError, with the whole report, if a check failed."""
        if self.failures:
            raise TargetError(str(self))

    def __str__(self) -> str:
        outcomes = [finding.outcome for finding in self.findings]
        kinds: tuple[Outcome, ...] = ("failed", "warning", "skipped", "passed")
        counts = ", ".join(f"{outcomes.count(k)} {k}" for k in kinds if k in outcomes)
        ordered = sorted(self.findings, key=lambda finding: kinds.index(finding.outcome))
        return "\n".join([f"{self.target}: {counts}", "", *map(str, ordered)])
