"""Real uses of the gate, beside neighbours, with and without a planted regression of 3%.

    python benchmarks/gate_runs.py --runs 60

Each line of docs/benchmarks/gate_runs.jsonl is one call of `hotloop gate`: what was planted, its
exit code, the slowdown that it found, and how long it took. A call of this script goes on with the
case that has the fewest lines. `gate_errors.py` makes the page.
"""

import argparse
import collections
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

from gate_noise import BOUND_BY_PROCESSOR, NOISES, neighbours, side_text
from hotloop.loop.host import host_facts
from league.process import append, read

RESULTS = Path(__file__).parents[1] / "docs/benchmarks/gate_runs.jsonl"
VERSION = "1"
PLANTED = (0.0, 0.03)


def run_gate(loop: str, noise: str, planted: float, seed: int) -> None:
    """Call the gate once, and note how it ended."""
    facts = host_facts()
    command = [sys.executable, "-m", "hotloop.cli.main", "gate", side_text(loop, planted)]
    words = ["--baseline", side_text(loop), "--worse", "3%", "--json", "--seed", str(seed)]
    with neighbours(noise, seed):
        begin = time.perf_counter()
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        seconds = time.perf_counter() - begin
    found = json.loads(done.stdout)
    append(
        RESULTS,
        VERSION,
        {
            "loop": loop,
            "noise": noise,
            "planted": planted,
            "code": done.returncode,
            "verdict": found["verdict"],
            "slowdown": found["slowdown"],
            "launches": found["launches"],
            "seconds": round(seconds, 1),
            **{name: facts[name] for name in ("processor", "cores", "date")},
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60, help="of all calls together")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of this call")
    options = parser.parse_args()
    begin = time.monotonic()
    cases = list(itertools.product(BOUND_BY_PROCESSOR, NOISES, PLANTED))
    while time.monotonic() - begin < options.minutes * 60:
        lines = read(RESULTS)
        if len(lines) >= options.runs:
            return
        counts = collections.Counter((e["loop"], e["noise"], e["planted"]) for e in lines)
        case = min(cases, key=lambda each: counts[each])
        run_gate(*case, seed=len(lines))


if __name__ == "__main__":
    main()
