"""How much does `hotloop optimize` gain on real targets, and does it gain what was wanted?

Each search is a command of its own, in turns, with the advice left out. Raw results are appended to
a file, from which a run that was broken off goes on.

    pip install 'hotloop[optimize]'
    python benchmarks/optimize_targets.py --repeats 3 --markdown docs/benchmarks/optimize_targets.md
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import table, write_page

RAW = Path("docs/benchmarks/optimize_targets.jsonl")
LOADER = str(Path(__file__).with_name("optimize_loader.py"))


@dataclass(frozen=True)
class Target:
    """A target with the settings that it starts from, and the gain that is wanted of it."""

    name: str
    words: tuple[str, ...]
    wanted: float
    budget_s: float
    arguments: tuple[str, ...] = ()


# CleanRL's ppo.py, whose learning rate falls linearly as here.
CLEANRL = (
    *("num_envs=4", "fragment_steps=128", "minibatches=4", "epochs=4", "learning_rate=0.00025"),
    *("gamma=0.99", "gae_lambda=0.95", "clip=0.2", "entropy_weight=0.01", "total_steps=500000"),
)
TARGETS = (
    Target(
        "covid:astoria, all switches off",
        ("covid:astoria", "fused=false", "active_set=false", "threads=1"),
        wanted=20.0,
        budget_s=60.0,
    ),
    Target("a loader that waits", (LOADER,), 3.0, 60.0, ("--", "waits")),
    Target("a loader bound by the processor", (LOADER,), 1.6, 60.0, ("--", "works")),
    Target(
        "ppo:CartPole-v1, CleanRL's settings, time to the target",
        ("ppo:CartPole-v1", *CLEANRL, "--allow-learning-changes"),
        wanted=2.0,
        budget_s=420.0,
    ),
)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--only", default="", help="part of a target's name")
    options.add_argument("--raw", type=Path, default=RAW)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    lines = {key: found for key, found in _read(chosen.raw).items() if "problem" not in found}
    for repeat in range(chosen.repeats):
        for target in TARGETS:
            if chosen.only not in target.name or (target.name, repeat) in lines:
                continue
            found = _optimized(target, repeat)
            lines[target.name, repeat] = found
            with chosen.raw.open("a") as file:
                file.write(json.dumps([target.name, repeat, found]) + "\n")
            print(target.name, repeat, found, flush=True)
    write_page(
        chosen.markdown,
        "What `hotloop optimize` gains",
        _parts(lines),
        "benchmarks/optimize_targets.py",
    )


Lines = dict[tuple[str, int], dict[str, Any]]


def _read(path: Path) -> Lines:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {(name, repeat): found for name, repeat, found in rows}


def _optimized(target: Target, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "hotloop.cli.main", "optimize", *target.words),
                *("--budget", str(target.budget_s), "--seed", str(seed), "--no-advice", "--json"),
                *target.arguments,
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        return {"problem": done.stderr.strip().splitlines()[-1]}
    found = json.loads(done.stdout)
    gain = found["gain"]
    return {
        "gain": [gain["value"], gain["low"], gain["high"]],
        "best": found["best"],
        "tried": len(found["trials"]),
        "seconds": found["seconds"],
        "load": os.getloadavg()[0],
    }


def _parts(lines: Lines) -> list[str]:
    rows = []
    for target in TARGETS:
        for (name, repeat), found in sorted(lines.items()):
            if name != target.name:
                continue
            if "problem" in found:
                rows.append([name, f"{target.wanted:g}x", found["problem"], "", "", "no"])
                continue
            value, low, high = found["gain"]
            best = " ".join(f"{key}={option}" for key, option in found["best"].items())
            rows.append(
                [
                    f"{name} ({repeat + 1})",
                    f"{target.wanted:g}x",
                    f"{value:.2f} [{low:.2f}, {high:.2f}]",
                    best or "as it is",
                    f"{found['tried']} in {found['seconds']:.0f} s",
                    "yes" if value >= target.wanted else "no",
                ]
            )
    return [
        "Times as fast as at the start, as the last part of each search has measured it.",
        table(["target", "wanted", "gain", "best", "tried", "reached"], rows),
    ]


if __name__ == "__main__":
    main()
