"""Files about a gate for other programs: JUnit for a build server, Markdown for a code review."""

import hashlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from hotloop.loop.files import atomic_output
from hotloop.loop.host import describe
from hotloop.loop.run import Run
from hotloop.repeat.gate import BLOCKED, CANNOT_SAY, GateVerdict
from hotloop.report.gate import decision_text, gap_text, gate_lines
from hotloop.report.numbers import figure, seconds

# What XML 1.0 cannot hold, not even as a number.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, verdict: GateVerdict, run: Run, *, may_pass: bool) -> None:
    """Write one test suite with one test case.

    It fails if the gate is blocked. Where the gate cannot say, it is skipped if that may pass, and
    else fails with a type of its own.
    Raises: RunError if it cannot be written.
    """
    blocked, unknown = verdict.verdict == BLOCKED, verdict.verdict == CANNOT_SAY
    skipped = unknown and may_pass
    counts = {
        "tests": "1",
        "failures": str(int(blocked or (unknown and not skipped))),
        "errors": "0",
        "skipped": str(int(skipped)),
        "time": f"{verdict.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "hotloop gate", **counts})
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": "hotloop.gate", "name": _clean(run.target), "time": counts["time"]},
    )
    lines = _clean("\n".join(gate_lines(verdict, run)))
    message = _clean(decision_text(verdict))
    if skipped:
        ElementTree.SubElement(case, "skipped", {"message": message})
    elif blocked or unknown:
        why = "slower" if blocked else "cannot say"
        failure = ElementTree.SubElement(case, "failure", {"type": why, "message": message})
        failure.text = lines
    ElementTree.SubElement(case, "system-out").text = lines
    ElementTree.indent(suites)
    with atomic_output(path, "the JUnit file could not be written", "--junit") as scratch:
        ElementTree.ElementTree(suites).write(scratch, encoding="utf-8", xml_declaration=True)


def write_markdown(path: Path, verdict: GateVerdict, run: Run) -> None:
    """Write a short comment, which begins with a line that readers do not see.

    Raises: RunError if it cannot be written.
    """
    with atomic_output(path, "the comment could not be written", "--markdown") as scratch:
        scratch.write_text(markdown(verdict, run), encoding="utf-8", errors="replace")


def markdown(verdict: GateVerdict, run: Run) -> str:
    """The comment."""
    a, b = run.facts["sides"]
    rows = [
        ("", "A, the baseline", "B"),
        ("---", "---", "---"),
        ("what", _code(a), _code(b)),
        (f"{verdict.unit}/s", figure(verdict.rate_a), figure(verdict.rate_b)),
        ("slowdown of B", "", gap_text(verdict)),
        ("launches of both", "", str(verdict.launches)),
        ("time", "", seconds(verdict.seconds)),
        ("machine", "", describe(run.host)),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{marker(run)}\n**hotloop gate: {decision_text(verdict)}**\n\n{table}\n"


def marker(run: Run) -> str:
    """A hidden line by which a bot finds its own comment about the same side again."""
    name = run.facts["sides"][1].encode("utf-8", "replace")
    return f"<!-- hotloop-gate {hashlib.sha256(name).hexdigest()[:12]} -->"


def _code(text: str) -> str:
    """A text as code in a cell of a table, whatever it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{' '.join(text.split())}{pad}{fence}".replace("|", "\\|")


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
