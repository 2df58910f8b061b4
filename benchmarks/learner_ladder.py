"""How many updates a second does a learner make on each rung, from plain to compiled?

PPO learns again and again from one batch, with a small and with a large network; the rungs take
turns. Beside the rate stands how much of the device's measured peak the counted operations use
(MFU). Rungs that need a card are left out without one, and named. Raw results are appended to a
file; the page shows the newest of each device and network.

    python benchmarks/learner_ladder.py --markdown docs/benchmarks/learner_ladder.md
    python benchmarks/learner_ladder.py --device cuda --markdown docs/benchmarks/learner_ladder.md
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotloop.benchmark.peaks import measure_peaks
from hotloop.benchmark.work import WorkCounter
from hotloop.errors import SettingError
from hotloop.learn.ppo import PPO, PPOSettings
from hotloop.loop.control import process_control
from hotloop.loop.figures import paired_ratio
from hotloop.loop.host import describe, host_facts
from league.process import append, read
from tables import machines, ratio_text, table, write_page

PEERS = Path(__file__).parent / "peers"
RESULTS = Path(__file__).parents[1] / "docs/benchmarks/learner_ladder.jsonl"
VERSION = "1"
PIXELS = "pong:PongPixels-v0"
NETWORKS: dict[str, dict[str, Any]] = {
    "small: CartPole, 2 x 64 units": {"env_id": "CartPole-v1"},
    "large: Pong pixels, Nature CNN": {"env_id": PIXELS, "network": "nature_cnn"},
}
PLAIN = "plain"
HALF, PINNED = {"precision": "bfloat16"}, {"transfer": "pinned"}
# Those that compile come last: where the time is short, they are what is left out.
RUNGS: dict[str, dict[str, str]] = {
    PLAIN: {},
    "bfloat16": HALF,
    "pinned": PINNED,
    "graph": {"compiled": "graph"},
    "graph, bfloat16": {"compiled": "graph", **HALF},
    "graph, bfloat16, pinned": {"compiled": "graph", **HALF, **PINNED},
    "compile": {"compiled": "compile"},
    "compile, bfloat16": {"compiled": "compile", **HALF},
}
BATCH = {"num_envs": 8, "fragment_steps": 32, "epochs": 2, "minibatches": 4, "anneal": False}
ROUNDS, MIN_ROUNDS = 12, 3
TURN_S = 0.25  # of a rung in a round, and at least one update


class Rung:
    """A learner that makes the same update again and again. Raises: SettingError if it cannot."""

    def __init__(self, learner: PPO) -> None:
        self.learner = learner
        self._steps = learner.collector.collect()
        self._given = learner._advantages(self._steps)
        begin = time.perf_counter()
        self.update()
        self.first_s = time.perf_counter() - begin

    def update(self) -> None:
        """Make an update, and wait until it is done."""
        self.learner.update(self._steps, *self._given)
        if self.learner.policy.flat.is_cuda:
            torch.cuda.synchronize()

    def rate(self) -> float:
        """Updates a second over a turn."""
        begin, updates = time.perf_counter(), 0
        while not updates or time.perf_counter() - begin < TURN_S:
            self.update()
            updates += 1
        return updates / (time.perf_counter() - begin)

    def flops(self) -> tuple[float, float]:
        """FLOPs of an update's products, and their share of the calls of operations."""
        counter = WorkCounter(process_control().clock)
        counter.start()
        try:
            self.update()
        finally:
            counter.stop()
        calls = [operation.is_product for operation in counter.operations]
        return counter.work([], [], 1).product_flops, sum(calls) / len(calls)


def measured(
    network: str, device: str, seconds: float, make: Callable[[PPOSettings], PPO] = PPO
) -> dict[str, Any]:
    """Let the rungs of a network take turns, for about so many seconds."""
    rungs: dict[str, Rung] = {}
    left_out: dict[str, str] = {}
    begin = time.perf_counter()
    with ExitStack() as stack:
        for name, rung in RUNGS.items():
            try:
                settings = PPOSettings(device=device, **NETWORKS[network], **BATCH, **rung)  # type: ignore[arg-type]
                if rungs and time.perf_counter() - begin > seconds / 2:
                    left_out[name] = "no time was left"
                    continue
                learner = make(settings)
                stack.callback(learner.close)
                rungs[name] = Rung(learner)
            except SettingError as error:
                left_out[name] = str(error)
        flops, coverage = rungs[PLAIN].flops()
        rates: list[list[float]] = []
        while len(rates) < ROUNDS:
            if len(rates) >= MIN_ROUNDS and time.perf_counter() - begin > seconds:
                break
            rates.append([rung.rate() for rung in rungs.values()])
    return {
        "network": network,
        "device": device,
        "name": torch.cuda.get_device_name() if device != "cpu" else "CPU",
        "rungs": list(rungs),
        "rates": rates,
        "first_s": [rung.first_s for rung in rungs.values()],
        "flops": flops,
        "coverage": coverage,
        "left_out": left_out,
        "machine": describe(host_facts()),
    }


def peaks() -> dict[str, Any]:
    """The peaks of the device in both precisions."""
    return {name: asdict(measure_peaks(precision=name)) for name in ("float32", "bfloat16")}


def page(lines: Sequence[dict[str, Any]]) -> list[str]:
    """A table for each line."""
    steps = BATCH["epochs"] * BATCH["minibatches"]
    rows = BATCH["num_envs"] * BATCH["fragment_steps"]
    parts = [
        f"An update of PPO: {rows} env steps, {BATCH['epochs']} epochs of {BATCH['minibatches']} "
        f"minibatches, {steps} optimiser steps. The rungs take turns. Ratios are to the plain "
        "rung, with their 95% interval. MFU: the products (of matrices, and convolutions) of the "
        "plain update, by the rung's rate, over the peak that was measured in the rung's precision."
    ]
    for line in lines:
        parts.append(f"## {line['name']}, {line['network']}")
        parts.append(_table(line))
        parts.append(
            f"{line['flops'] / 1e9:.3g} GFLOP an update, in the {line['coverage']:.0%} of its "
            "operations that are products. Peaks: "
            + "; ".join(
                f"{peak['flops_per_s'] / 1e9:,.0f} GFLOP/s ({peak['how']})"
                for peak in line["peaks"].values()
            )
            + "."
        )
        if line["left_out"]:
            parts.append(
                "Left out:\n\n"
                + "\n".join(f"- {name}: {why}" for name, why in line["left_out"].items())
            )
    if not any(line["device"] != "cpu" for line in lines):
        parts.append("No card was measured yet.")
    return parts


def newest(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest line of each device and network."""
    found = {(line["device"], line["network"]): line for line in lines}
    return [line for _, line in sorted(found.items())]


def _table(line: dict[str, Any]) -> str:
    rates = np.array(line["rates"])
    base = rates[:, line["rungs"].index(PLAIN)]
    rows = []
    for k, name in enumerate(line["rungs"]):
        ratio = paired_ratio(rates[:, k], base)
        text = "" if name == PLAIN else ratio_text((ratio.value, ratio.low, ratio.high))
        peak = line["peaks"][RUNGS[name].get("precision", "float32")]["flops_per_s"]
        mfu = rates[:, k].mean() * line["flops"] / peak
        first = f"{line['first_s'][k]:.2g}"
        rows.append([name, f"{rates[:, k].mean():.3g}", text, f"{mfu:.2%}", first, str(len(rates))])
    header = ["rung", "updates/s", "to plain", "MFU", "first update, s", "rounds"]
    return table(header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--minutes", type=float, default=2.0, help="for all networks, about")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("learner_ladder.py: torch sees no CUDA card on this machine; leave --device out")
    if not options.page_only:
        sys.path.append(str(PEERS))
        seconds = options.minutes * 60 / len(options.only)
        for network in options.only:
            line = measured(network, options.device, seconds) | {"peaks": peaks()}
            append(options.results, VERSION, line)
            print(json.dumps({**line, "rates": np.mean(line["rates"], axis=0).round(2).tolist()}))
    lines = newest(read(options.results))
    write_page(
        options.markdown,
        "The learner's update, from plain to compiled",
        page(lines),
        "benchmarks/learner_ladder.py",
        machine=machines(lines),
    )


if __name__ == "__main__":
    main()
