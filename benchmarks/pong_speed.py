"""How many env steps a second are learned from on Pong's pixels: APPO beside Sample Factory's.

The same env, network and batches: eight envs, updates of 1,024 steps in four minibatches, four
times over. Every run is a process of its own that trains for half a minute; the systems take turns,
so that a slow minute of the machine meets all of them. What was measured is kept: a benchmark that
was broken off goes on.

    python3 -m venv PEERS/sf && PEERS/sf/bin/pip install torch==2.13.0 sample-factory
    PEERS/sf/bin/pip install "numpy<2" "opencv-python-headless<4.12" ale-py==0.10.1
    python benchmarks/pong_speed.py --peers PEERS --markdown docs/benchmarks/pong_speed.md
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.loop.figures import paired_ratio
from hotloop.loop.host import whole_cores
from league.process import append, read, run_alone
from learning import python_of, version_of
from learning_settings import OWN_VENVS, PEERS, PONG, SYSTEMS, Settings
from tables import median_interval, ratio_text, table, write_page

RESULTS = Path("docs/benchmarks/pong_speed.jsonl")
TRAINING_S, SET_UP_S = 30.0, 120.0
NO_LIMIT = 10**8  # env steps, which no run reaches
_BATCHES: Settings = {
    "total_steps": NO_LIMIT,
    "num_envs": 8,
    "fragment_steps": 128,
    "minibatches": 4,
    "epochs": 4,
    "learning_rate": 2.5e-4,
    "clip": 0.1,
    "gamma": 0.99,
    "entropy_weight": 0.01,
    "value_weight": 0.5,
    "max_grad_norm": 0.5,
}
_PPO: Settings = {**_BATCHES, "algorithm": "ppo", "gae_lambda": 0.95, "anneal": False}
_APPO: Settings = {**_BATCHES, "algorithm": "appo", "anneal": False}
_SF: Settings = {
    **_BATCHES,
    "gae_lambda": 0.95,
    "anneal": False,
    "hidden_size": 64,
    "hidden_layers": 2,
}
# By the name of a row: the system that runs it, and with which settings.
ROWS: Mapping[str, tuple[str, Settings]] = {
    "hotloop APPO, 1 actor": ("APPO", {**_APPO, "num_workers": 1}),
    "hotloop APPO, 2 actors": ("APPO", {**_APPO, "num_workers": 2, "batch_fragments": 2}),
    "hotloop PPO, double-buffered": (
        "PPO",
        {**_PPO, "backend": "process", "num_workers": 2, "double_buffer": True},
    ),
    "hotloop PPO, one process": ("PPO", _PPO),
    "Sample Factory APPO, 1 worker": ("Sample Factory APPO", {**_SF, "num_workers": 1}),
    "Sample Factory APPO, 2 workers": ("Sample Factory APPO", {**_SF, "num_workers": 2}),
    "Sample Factory APPO, one process": ("Sample Factory APPO", _SF),
}
SERIAL = "hotloop PPO, one process"


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5, help="that the results shall hold")
    options.add_argument("--peers", type=Path, default=OWN_VENVS, help="virtual environments")
    options.add_argument("--results", type=Path, default=RESULTS, help="where raw results go")
    options.add_argument("--markdown", type=Path, help="where the page goes")
    options.add_argument("--page-only", action="store_true", help="measure nothing")
    chosen = options.parse_args()
    versions = {row: version_of(system, chosen.peers) for row, (system, _) in ROWS.items()}
    if not chosen.page_only:
        os.environ["OMP_NUM_THREADS"] = "1"  # several would take the cores from the processes
        _measure(chosen, versions)
    rates, last = _rounds(read(chosen.results), versions)
    write_page(
        chosen.markdown,
        "Pong from pixels: env steps a second",
        page(rates, last),
        "benchmarks/pong_speed.py",
    )


def _measure(chosen: argparse.Namespace, versions: Mapping[str, str]) -> None:
    """Round by round, what the results do not hold yet."""
    done = {
        (line["row"], line["round"], line["version"])
        for line in read(chosen.results)
        if "refused" not in line
    }
    for turn in range(chosen.rounds):
        first = turn % len(ROWS)
        for row in [*ROWS][first:] + [*ROWS][:first]:
            if (row, turn, versions[row]) in done:
                continue
            outcome = _run(row, chosen.peers)
            append(chosen.results, versions[row], {"row": row, "round": turn} | outcome)
            print(f"round {turn + 1}, {row}: {_said(outcome)}", flush=True)


def _run(row: str, peers: Path) -> dict[str, Any]:
    system, settings = ROWS[row]
    rule = {
        "env_id": PONG,
        "limit": NO_LIMIT,
        "evaluate_every": NO_LIMIT,
        "limit_s": TRAINING_S,
        "episodes": 1,
    }
    training = json.dumps({"seed": 1, "settings": dict(settings), "rule": rule})
    script = PEERS / SYSTEMS[system].script
    limit_s = SET_UP_S + TRAINING_S
    return run_alone(script, [training], limit_s, python=python_of(system, peers))


def _said(outcome: Mapping[str, Any]) -> str:
    if "refused" in outcome:
        return str(outcome["refused"])
    return f"{_rate(outcome):,.0f} env steps a second"


def _rate(line: Mapping[str, Any]) -> float:
    return float(line["env_steps"]) / float(line["seconds"])


def _rounds(
    lines: Sequence[Mapping[str, Any]], versions: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, list[Mapping[str, Any]]]]:
    """Return by row the rates of the rounds that all rows have, and their lines."""
    found = {
        (line["row"], line["round"]): line
        for line in lines
        if "refused" not in line and versions.get(line["row"]) == line["version"]
    }
    whole = sorted(
        turn for turn in {turn for _, turn in found} if all((row, turn) in found for row in ROWS)
    )
    if not whole:
        raise SystemExit("pong_speed: expected at least one whole round in the results, got none")
    by_row = {row: [found[row, turn] for turn in whole] for row in ROWS}
    return {row: np.array([*map(_rate, each)]) for row, each in by_row.items()}, by_row


def page(
    rates: Mapping[str, np.ndarray], lines: Mapping[str, Sequence[Mapping[str, Any]]]
) -> list[str]:
    """The table: rates, what of the machine was busy, and ratios to the fastest peer."""
    peer = max((row for row in ROWS if "Sample" in row), key=lambda row: np.median(rates[row]))
    limit = whole_cores() * rates[SERIAL]
    rows = []
    for row, each in rates.items():
        interval = median_interval(each)
        ratio = paired_ratio(each, rates[peer])
        cores = [
            np.median([line[share] for line in lines[row]])
            for share in ("own_cores", "started_cores")
        ]
        rows.append(
            [
                row,
                f"{interval.value:,.0f} ({each.min():,.0f} to {each.max():,.0f})",
                "1" if row == peer else ratio_text((ratio.value, ratio.low, ratio.high)),
                f"{np.median(each / limit):.2f}",
                *(f"{share:.2f}" for share in cores),
            ]
        )
    header = [
        "system",
        "env steps a second, median (range)",
        f"ratio to {peer}",
        "of the limit",
        "cores that its process keeps busy",
        "cores that the processes it starts keep busy",
    ]
    return [
        f"{len(limit)} rounds of {TRAINING_S:.0f} s each, in turns; ratios with their 95% "
        "intervals. Eight envs; an update is 1,024 env steps, four times over in minibatches of "
        "256; the network is DQN's, for the four latest screens of 42 x 42 pixels.",
        table(header, rows),
        f"The limit: {whole_cores()} processes, each with envs and a learner of its own, that do "
        f"not have to wait for each other: {np.median(limit):,.0f} env steps a second, "
        f"{whole_cores()} times what {SERIAL} does. hotloop's learner is in the process that is "
        "started, its actors are started by it; Sample Factory starts its learner too, where it "
        "has workers.",
    ]


if __name__ == "__main__":
    main()
