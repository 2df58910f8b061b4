"""Do the forecasts of policy lag, and of a machine's split, come true in measured runs?

Lag: IMPALA learns from actor processes whose steps last 10 ms, and each of its updates is made to
last as long as a larger network's would. The closed form and the simulation are written down
before each run; the run then counts the lag of every fragment that it learns from, and how long
the learner worked.

Split: the cores of a machine are simulated. An acting core is a process whose env's steps take
10 ms and no processor; learning from a fragment takes as long as it would on the learning cores.
What passes between them (processes, shared memory, policies sent back) is real. Three splits are
measured, all others are forecast from them, and then measured.

    pip install 'hotloop[torch,plan]'
    python benchmarks/plan_checks.py --markdown docs/benchmarks/plan_checks.md
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil

from hotloop.learn.algorithms import learner_type
from hotloop.plan.lag import Learning, staleness
from hotloop.plan.simulation import simulate_learning
from hotloop.plan.split import Split, plan_split
from hotloop.rollout import FragmentCollector
from hotloop.rollout.simulated_nodes import FixedActions, SimulatedNode
from tables import table, write_page

STEP_S, FRAGMENT_STEPS = 0.01, 25
FRAGMENT_S = STEP_S * FRAGMENT_STEPS
BUSY = 50.0  # percent of the cores: from here on steps may last longer than they are meant to
PEERS = Path(__file__).parent / "peers"  # the env `sleeping:Sleeping-v0`
# Actors, fragments of an update, seconds of an update.
LEARNINGS = ((1, 1, 0.02), (4, 1, 0.02), (4, 4, 0.05), (4, 2, 0.1), (4, 1, 0.125), (4, 4, 0.5))
CORES, LEARN_SPS, SERIAL = 6, 240.0, 0.1  # of the machine; what one core learns, and what it must
SPLITS_FITTED = (2, 4, 5)  # acting cores
Note = Callable[[str], None]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--seconds", type=float, default=20.0, help="of each run")
    chosen = options.parse_args()
    sys.path.append(str(PEERS))  # the env's module, here as in the actors
    note = partial(print, flush=True)
    psutil.cpu_percent()
    parts = [*lags(chosen.seconds, note), *splits(chosen.seconds, note)]
    busy = psutil.cpu_percent()
    said = f"This machine's cores were {busy:.0f}% busy meanwhile, with this and what else ran."
    if busy > BUSY:
        said += (
            " Steps that are meant to last 10 ms last longer then, which lowers the rates of "
            "actors and not their lag."
        )
    parts.insert(0, said)
    write_page(
        chosen.markdown, "Forecasts of lag and of splits", parts, "benchmarks/plan_checks.py"
    )


# --- lag -----------------------------------------------------------------------------------------


def lags(seconds: float, note: Note) -> list[str]:
    rows = []
    for actors, batch, update_s in LEARNINGS:
        learning = Learning(actors, FRAGMENT_S, batch, update_s)
        closed, simulated = staleness(learning), simulate_learning(learning, spread=0.05)
        note(f"forecast of {learning}: {closed}, simulated {simulated}")
        measured = run_learner(learning, seconds)
        note(f"measured: {measured}")
        rows.append(
            [
                *(str(actors), str(batch), f"{update_s:g}"),
                f"{closed.lag:.2f}, {simulated.lag:.2f}, {measured['lag']:.2f}",
                f"{closed.busy:.0%}, {simulated.busy:.0%}, {measured['busy']:.0%}",
                f"{closed.fragments_per_s:.2f}, {simulated.fragments_per_s:.2f}, "
                f"{measured['fragments_per_s']:.2f}",
            ]
        )
    header = ["actors", "fragments of an update", "an update lasts (s)", "mean lag (updates)"]
    return [
        "## Lag",
        "IMPALA with actor processes; a fragment lasts "
        f"{FRAGMENT_S:g} s. In each cell: the closed form, the simulation, measured.",
        table([*header, "learner busy", "fragments/s"], rows),
    ]


def run_learner(learning: Learning, seconds: float) -> dict[str, float]:
    """Run IMPALA whose updates last as long as they should, and count."""
    kind = learner_type("impala")
    learner: Any = kind(
        kind.settings_type(  # type: ignore[call-arg]
            env_id="sleeping:Sleeping-v0",
            backend="process",
            num_envs=learning.actors,
            num_workers=learning.actors,
            batch_fragments=learning.batch_fragments,
            fragment_steps=FRAGMENT_STEPS,
            max_lag=10_000,
        )
    )
    plain, worked, lags = learner.learn, [0.0], []

    def learn(fragments: Any) -> bool:
        begin = time.perf_counter()
        lags.extend(learner.actors.lags)
        changed = bool(plain(fragments))
        time.sleep(max(0.0, learning.update_s - (time.perf_counter() - begin)))
        worked[0] += time.perf_counter() - begin
        return changed

    learner.learn = learn
    try:
        for _ in range(8 * learning.actors // learning.batch_fragments + 4):  # until it is steady
            learner.iterate()
        lags.clear()
        worked[0], begin = 0.0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            learner.iterate()
        passed = time.perf_counter() - begin
        return {
            "lag": fmean(lags),
            "busy": worked[0] / passed,
            "fragments_per_s": len(lags) / passed,
        }
    finally:
        learner.close()


# --- splits --------------------------------------------------------------------------------------


def splits(seconds: float, note: Note) -> list[str]:
    fitted = [run_split(act, seconds) for act in SPLITS_FITTED]
    for split in fitted:
        note(f"measured: {split}: {split.sps:.1f} SPS")
    plan = plan_split(fitted, CORES)
    rows = []
    for found in plan.forecasts:
        note(f"forecast: {found.split}: {found.sps}")
    for found in plan.forecasts:
        act = found.split.act_cores
        measured = run_split(act, seconds).sps or 0.0
        note(f"measured: {found.split}: {measured:.1f} SPS")
        sps = found.sps
        rows.append(
            [
                *(str(act), str(found.split.learn_cores), found.limited_by),
                f"{sps.value:.0f} [{sps.low:.0f}, {sps.high:.0f}]",
                f"{measured:.0f}{' (fitted before)' if act in SPLITS_FITTED else ''}",
                f"{sps.value / measured - 1:+.1%}",
            ]
        )
    best = plan.forecasts[plan.best].split
    return [
        f"## A split of {CORES} simulated cores",
        f"Forecast from three splits. The best one by the forecast: {best}.",
        table(["acting", "learning", "limited by", "forecast SPS", "measured SPS", "error"], rows),
    ]


def run_split(act_cores: int, seconds: float) -> Split:
    """Env steps/s that are learned from, with so many acting cores and the others learning."""
    learn_cores = CORES - act_cores
    learn_sps = LEARN_SPS * learn_cores / (1 + SERIAL * (learn_cores - 1))
    policy = FixedActions(np.zeros(1, np.int64))
    with FragmentCollector(
        partial(SimulatedNode, "CartPole-v1", 1, STEP_S),
        policy,
        fragment_steps=FRAGMENT_STEPS,
        num_workers=act_cores,
        double_buffer=False,
    ) as fragments:
        fragments.wait_until_started()
        steps, begin = 0, time.perf_counter()
        warm_up_s = 4 * FRAGMENT_S
        while time.perf_counter() - begin < seconds + warm_up_s:
            if not steps and time.perf_counter() - begin >= warm_up_s:
                begin, warm_up_s, steps = time.perf_counter(), 0.0, 0
            (fragment,) = fragments.collect()
            time.sleep(fragment.transitions / learn_sps)
            fragments.update(policy)
            steps += 0 if warm_up_s else fragment.transitions
        return Split(act_cores, learn_cores, steps / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
