"""Do hotloop's learners learn, how soon, and beside whom?

Every training is a process of its own; the systems take turns on every seed, so that a slow minute
of the machine meets all of them. The rule that judges them is in peers/rule.py, what is trained
with which settings in learning_settings.py. Every training is a line of the results, from which
the page is made. What stands there, by the code and the settings of now, is not trained again: a
benchmark that was broken off goes on.

    pip install -c constraints.txt stable-baselines3 tianshou
    python3 -m venv PEERS/sbx && PEERS/sbx/bin/pip install -c constraints.txt torch sbx-rl
    python3 -m venv PEERS/rllib && PEERS/rllib/bin/pip install torch==2.13.0 'ray[rllib]'
    python3 -m venv PEERS/sf && PEERS/sf/bin/pip install torch==2.13.0 sample-factory
    PEERS/sbx/bin/pip install box2d pygame; PEERS/rllib/bin/pip install box2d pygame
    python benchmarks/learning.py --minutes 60 --peers PEERS
    python benchmarks/learning.py --minutes 5 --only 'CartPole-v1' --systems '*PPO' --again
    taskset -c 1 python benchmarks/learning.py --minutes 60 --only LunarLander-v3 --systems 'SB3*'
    python benchmarks/learning.py --page-only

`taskset` leaves the other cores to other work: what is noted of the load is that of its core.

Settings are tuned with results of their own, on seeds that are not among those of the page:

    python benchmarks/learning.py --minutes 5 --only CartPole-v1 --systems IMPALA --seeds 1001 \\
        --set learning_rate=0.002 --results tuning.jsonl
"""

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hotloop.loop.host import host_facts
from league.process import append, read, run_alone
from learning_page import write
from learning_settings import ENVS, OWN_VENVS, PEERS, SYSTEMS, TRAININGS, Settings

RESULTS = Path("docs/benchmarks/learning.jsonl")
PAGE = Path("docs/benchmarks/learning.md")
SEEDS = (1, 2, 3, 4, 5)
# What a training runs through, where its module loads it: another version makes other results.
LEARNING_CODE = ("data", "envs", "learn", "ops", "rollout")
SET_UP_S = 120.0  # a process may take for imports and for making its learner
EVALUATION = 3.0  # a process may take so many times its training, for evaluation is not in that
LOAD_S = 0.5  # for so long one looks how busy the machine is before a training


@dataclass(frozen=True)
class Job:
    """One training."""

    env: str
    system: str
    seed: int
    settings: Settings

    @property
    def facts(self) -> dict[str, Any]:
        """What a line of the results says of it; equal facts and an equal version: the same."""
        return {
            "env": self.env,
            "system": self.system,
            "seed": self.seed,
            "settings": dict(self.settings),
        }

    def run(self, peers: Path) -> dict[str, Any]:
        """Train in a process of its own. Returns what it said, or why it said nothing."""
        env, system = ENVS[self.env], SYSTEMS[self.system]
        training = {
            "seed": self.seed,
            "settings": dict(self.settings),
            "rule": {
                "env_id": env.env_id or self.env,
                "limit": self.settings["total_steps"],
                "target": env.target,
                "margin": env.margin,
                "episodes": env.episodes,
                "evaluate_every": env.evaluate_every,
                "limit_s": env.limit_s,
            },
        }
        arguments = [json.dumps(training), *system.arguments]
        limit_s = SET_UP_S + EVALUATION * env.limit_s
        python = python_of(self.system, peers)
        return run_alone(PEERS / system.script, arguments, limit_s, python=python)


def main() -> None:
    chosen = _options()
    if not chosen.page_only:
        # Several threads would be slower for networks this small, in every system.
        os.environ["OMP_NUM_THREADS"] = "1"
        _train(chosen)
    if chosen.results == RESULTS or chosen.markdown != PAGE:
        write(chosen.results, chosen.markdown)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--minutes", type=float, help="no training begins after so long")
    options.add_argument("--only", default="*", metavar="ENVS", help="patterns, with commas")
    options.add_argument("--systems", default="*", help="patterns, with semicolons")
    options.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options.add_argument("--again", action="store_true", help="repeat what the results hold")
    options.add_argument(
        "--set", nargs="+", default=[], metavar="NAME=VALUE", help="other settings, in JSON"
    )
    options.add_argument("--peers", type=Path, default=OWN_VENVS, help="virtual environments")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, default=PAGE, help="where the page goes")
    options.add_argument("--page-only", action="store_true", help="train nothing")
    chosen = options.parse_args()
    if not chosen.page_only and chosen.minutes is None:
        options.error("--minutes: expected how long trainings may begin, got none")
    if chosen.set and chosen.results == RESULTS:
        options.error("--set: expected --results elsewhere; the page is of the settings of now")
    if chosen.results == RESULTS and max(chosen.seeds) > 1000:
        options.error("--seeds: expected --results elsewhere, seeds from 1001 up are for tuning")
    return chosen


def _train(chosen: argparse.Namespace) -> None:
    """Train what the results do not hold yet, until the time is over."""
    done = [] if chosen.again else read(chosen.results)
    begin, versions = time.perf_counter(), dict[str, str]()
    for job in _jobs(chosen):
        if job.system not in versions:
            versions[job.system] = version_of(job.system, chosen.peers)
            if not versions[job.system]:
                print(f"{job.system}: not installed here", flush=True)
        if job.settings.get("device") == "cuda" and not host_facts().get("gpu"):
            print(f"{job.env}, {job.system}: wants a card, and there is none", flush=True)
            continue
        version = versions[job.system]
        if not version or any(
            line["version"] == version and line.items() >= job.facts.items() for line in done
        ):
            continue
        if time.perf_counter() - begin > 60 * chosen.minutes:
            print("the time is over; the same command goes on from here", flush=True)
            return
        around = {"load": os.getloadavg()[0], "busy": _busy()}
        outcome = job.run(chosen.peers)
        append(chosen.results, version, job.facts | around | outcome | {"machine": _machine()})
        print(_said(job, outcome), flush=True)


def _jobs(chosen: argparse.Namespace) -> Iterator[Job]:
    """Env by env and seed by seed; the system that is first changes from seed to seed."""
    changes = dict(_change(each) for each in chosen.set)
    for env, trainings in TRAININGS.items():
        if not _matches(env, chosen.only.split(",")):
            continue
        systems = [name for name in trainings if _matches(name, chosen.systems.split(";"))]
        for turn, seed in enumerate(chosen.seeds):
            first = turn % max(len(systems), 1)
            for system in systems[first:] + systems[:first]:
                yield Job(env, system, seed, {**trainings[system], **changes})


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _change(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


# --- versions and machine ------------------------------------------------------------------------


def python_of(system: str, peers: Path) -> str:
    """The interpreter of a system."""
    venv = SYSTEMS[system].venv
    return sys.executable if venv is None else str(peers / venv / "bin/python")


def version_of(system: str, peers: Path) -> str:
    """The version of a system's code; empty where it is not installed.

    Of hotloop, and of what is written here, it is a hash of the sources.
    """
    what, python = SYSTEMS[system], python_of(system, peers)
    if what.package is None:
        files = [PEERS / what.script] if what.module is None else _loaded(what.module)
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    asks = f"from importlib.metadata import version; print(version({what.package!r}))"
    try:
        asked = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{what.package} {asked.stdout.strip()}"


def _loaded(module: str) -> list[Path]:
    """The files of LEARNING_CODE that a module loads with it."""
    code = (
        f"import sys, {module}\n"
        "for name, loaded in sys.modules.items():\n"
        f"    if name.startswith({tuple(f'hotloop.{part}.' for part in LEARNING_CODE)}):\n"
        "        print(loaded.__file__)"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return sorted(map(Path, asked.stdout.split()))


def _busy() -> float:
    """The share of the cores that a training may use that others keep busy, 0 to 1."""
    shares = psutil.cpu_percent(LOAD_S, percpu=True)
    mine = os.sched_getaffinity(0)
    return sum(shares[core] for core in mine) / len(mine) / 100


def _machine() -> dict[str, Any]:
    facts = host_facts()
    machine = {name: facts[name] for name in ("processor", "cores") if name in facts}
    if facts.get("gpu"):
        machine["processor"] += f" with {facts['gpu']}"
    return machine


def _said(job: Job, outcome: dict[str, Any]) -> str:
    """A line about one training, for whoever watches."""
    head = f"{job.env:15} {job.system:18} seed {job.seed:4d}"
    if "refused" in outcome:
        return f"{head}  refused: {outcome['refused']}"
    solved = "solved    " if outcome["solved"] else "not solved"
    steps, seconds = outcome["env_steps"], outcome["seconds"]
    return (
        f"{head}  {solved} {steps:8d} steps {seconds:7.2f} s {steps / seconds / 1e3:6.1f}k/s  "
        f"last {outcome['curve'][-1][2] if outcome['curve'] else float('nan'):8.1f}"
    )


if __name__ == "__main__":
    main()
