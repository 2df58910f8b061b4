"""The contract of envs and vector envs as a test kit: `check(make)` tests one in a line."""

from hotloop.testing.conformance.report import Finding, Report
from hotloop.testing.conformance.run import check
from hotloop.testing.conformance.subject import ConformanceSettings

__all__ = ["ConformanceSettings", "Finding", "Report", "check"]
