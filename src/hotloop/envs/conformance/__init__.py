"""The contract of envs and vector envs as a test kit: `check(make)` tests anybody's in one line."""

from hotloop.envs.conformance.report import Finding, Report
from hotloop.envs.conformance.run import check
from hotloop.envs.conformance.subject import ConformanceSettings

__all__ = ["ConformanceSettings", "Finding", "Report", "check"]
