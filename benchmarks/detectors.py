"""How often is each detector of `hotloop.optimize` right about a real script?

Each script of `benchmarks/detector_scripts` is watched in a process of its own. A detector is right
about it if it reports the lines that the script marks with its name, and no others. One that is
right about fewer than nine of ten is not to be in the table of detectors.

    python benchmarks/detectors.py --markdown docs/benchmarks/detectors.md
    python benchmarks/detectors.py --only 'card_*'
    python benchmarks/detectors.py --scripts FOLDER    # others, marked in the same way
"""

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from detector_scripts import install_card
from hotloop.loop.scripts.start import StartLimits
from hotloop.optimize.detect import Detection
from hotloop.optimize.detectors import DETECTORS
from hotloop.results.session import run_target
from tables import table, write_page

SCRIPTS = Path(__file__).parent / "detector_scripts"
SECONDS, WARM_UP_S, PATIENCE_S = 5.0, 2.0, 240.0
LEAST_RIGHT = 0.9
_FAULT = re.compile(r"# fault: (.*)$")

Lines = dict[str, list[int]]  # by detector


@dataclass
class Answer:
    """What the detectors said about one script, and what is true."""

    script: str
    about: str
    truth: Lines
    found: Lines = field(default_factory=dict)
    error: str = ""

    def right(self, detector: str) -> bool:
        """Whether a detector named every line with its fault, and no other."""
        said = set(self.found.get(detector, []))
        return not self.error and said == set(self.truth.get(detector, []))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--only", default="*")
    options.add_argument("--scripts", type=Path, default=SCRIPTS)
    options.add_argument("--seconds", type=float, default=SECONDS)
    options.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one:
        print(json.dumps(_watch(chosen.one, chosen.seconds)), flush=True)
        os._exit(0)  # workers that a script would not end must not keep this process
    answers = []
    for path in sorted(chosen.scripts.glob("*.py")):
        if path.stem not in ("__init__", "card") and fnmatch.fnmatch(path.stem, chosen.only):
            answers.append(_ask(path, chosen.seconds))
            _print(answers[-1])
    write_page(
        chosen.markdown, "Detectors on real scripts", _page(answers), "benchmarks/detectors.py"
    )


def _watch(path: Path, seconds: float) -> Lines:
    """Run one script in this process, with all detectors."""
    install_card()
    detection = Detection(seconds=seconds, warm_up_s=WARM_UP_S)
    outcome = run_target(str(path), detection.run, start_limits=lambda _path: StartLimits())
    if outcome.error is not None:
        raise outcome.error
    found: Lines = {}
    for advice in detection.advice:
        where = advice.line if Path(advice.file) == path.resolve() else 0
        found.setdefault(advice.detector, []).append(where)
    return found


def _ask(path: Path, seconds: float) -> Answer:
    text = path.read_text()
    truth: Lines = {}
    for number, line in enumerate(text.splitlines(), 1):
        marked = _FAULT.search(line)
        for name in marked[1].split(", ") if marked else ():
            assert name in DETECTORS, f"{path.name}:{number}: {name}"
            truth.setdefault(name, []).append(number)
    answer = Answer(path.stem, text.split('"""')[1], truth)
    # One thread each: whether there are too many is for the script that sets them.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one", str(path), "--seconds", str(seconds)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        answer.error = f"no answer in {PATIENCE_S:.0f} s"
        return answer
    if done.returncode:
        answer.error = done.stderr.strip().splitlines()[-1] if done.stderr else "it crashed"
    else:
        answer.found = json.loads(done.stdout.splitlines()[-1])
    return answer


def _print(answer: Answer) -> None:
    wrong = [name for name in DETECTORS if not answer.right(name)]
    details = "; ".join(
        f"{name}: found {answer.found.get(name, [])}, true {answer.truth.get(name, [])}"
        for name in wrong
    )
    print(f"{answer.script:20} {answer.error or details or 'right'}", flush=True)


def _page(answers: list[Answer]) -> list[str]:
    rows = []
    for name in DETECTORS:
        right = sum(answer.right(name) for answer in answers)
        having = [answer for answer in answers if name in answer.truth]
        lines = sum(len(answer.truth[name]) for answer in having)
        hit = sum(
            len(set(answer.found.get(name, [])) & set(answer.truth[name])) for answer in having
        )
        extra = sum(
            len(set(answer.found.get(name, [])) - set(answer.truth.get(name, [])))
            for answer in answers
        )
        kept = "yes" if right >= LEAST_RIGHT * len(answers) else "no: it must be left out"
        rows.append([name, f"{right} of {len(answers)}", f"{hit} of {lines}", str(extra), kept])
    return [
        f"{len(answers)} scripts, each watched for about {SECONDS:g} s after its warm-up. A "
        "detector is right about a script if it reports the lines that have its fault, and no "
        "others. A script without its fault counts as well: most loops do not have most faults.",
        table(["detector", "right", "lines found", "lines too many", "kept"], rows),
        "The scripts, with the faults that they have:",
        table(
            ["script", "what it is", "faults", "reported otherwise"],
            [[a.script, a.about, _listed(a.truth), _wrong(a)] for a in answers],
        ),
        "The scripts were written for this page, and marked before the detectors saw them. The "
        "first run was wrong about seven of them; detectors and marks were then corrected, so this "
        "shows that the detectors do as they say, and is no test on unseen scripts.",
        f"The scripts with a card ran on {torch.cuda.get_device_name()}."
        if torch.cuda.is_available()
        else "Cards are made of CPU memory here (`benchmarks/detector_scripts/card.py`): the "
        "operations are those of a machine with a card, the times are not.",
    ]


def _listed(lines: Lines) -> str:
    return ", ".join(f"{name} ({', '.join(map(str, at))})" for name, at in lines.items()) or "none"


def _wrong(answer: Answer) -> str:
    if answer.error:
        return answer.error
    wrong = {name: answer.found.get(name, []) for name in DETECTORS if not answer.right(name)}
    return ", ".join(
        f"{name} ({', '.join(map(str, lines)) or 'nothing'})" for name, lines in wrong.items()
    )


if __name__ == "__main__":
    main()
