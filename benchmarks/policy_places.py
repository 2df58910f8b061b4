"""Where should the policy act: at the head, beside its envs, or in an inference server?

IMPALA learns with the policy at each of the three places, in turns of a quarter of a second, with
networks from small to large, on quick envs and on envs that wait. What is compared is how many env
steps a second are learned from. Then `auto` is asked, which measures for a few seconds.

    python benchmarks/policy_places.py --markdown docs/benchmarks/policy_places.md
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.learn.algorithms import learner_type
from hotloop.learn.places import placed, race
from hotloop.learn.settings import PLACES
from hotloop.loop.figures import paired_ratio
from hotloop.loop.host import describe, host_facts
from league.process import append, read
from tables import machines, table, write_page

PEERS = Path(__file__).parent / "peers"
RESULTS = Path("docs/benchmarks/policy_places.jsonl")
VERSION = "1"
TIME_S = 60.0  # of a race
MAX_LAG = 100  # no fragment is dropped: what is compared is how many there are
SLEEPING, PIXELS = "sleeping:Sleeping-v0", "pong:PongPixels-v0"
# By the name of a row: the env, how many, in how many workers, and the network.
ROWS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "CartPole, 2 x 64 units": ("CartPole-v1", 32, 2, {"hidden_size": 64}),
    "CartPole, 2 x 256": ("CartPole-v1", 32, 2, {"hidden_size": 256}),
    "CartPole, 2 x 1024": ("CartPole-v1", 32, 2, {"hidden_size": 1024}),
    "envs of 10 ms, 2 x 64": (SLEEPING, 32, 8, {"hidden_size": 64}),
    "envs of 10 ms, 2 x 1024": (SLEEPING, 32, 8, {"hidden_size": 1024}),
    "Pong pixels, Nature CNN": (PIXELS, 16, 2, {"network": "nature_cnn"}),
}


def measured(row: str, device: str, seconds: float = TIME_S) -> dict[str, Any]:
    """Race the places, and ask `auto`."""
    env_id, num_envs, num_workers, network = ROWS[row]
    kind = learner_type("impala")
    settings = kind.settings_type(  # type: ignore[call-arg]
        env_id=env_id,
        num_envs=num_envs,
        num_workers=num_workers,
        backend="process",
        policy_at="auto",
        max_lag=MAX_LAG,
        server_device=device,
        **network,
    )
    variants = [settings.at(place) for place in PLACES]
    rates = race(kind, variants, time_s=seconds)  # type: ignore[arg-type]
    chosen = placed(kind, settings).policy_at  # type: ignore[arg-type]
    return {
        "row": row,
        "device": device,
        "rates": rates.tolist(),
        "auto": chosen,
        "machine": describe(host_facts()),
    }


def page(lines: list[dict[str, Any]]) -> list[str]:
    """The table, from lines in the order of their rows."""
    rows = []
    for line in lines:
        rates = np.array(line["rates"])
        best = int(rates.mean(axis=0).argmax())
        cells = [_cell(rates, place, best) for place in range(len(PLACES))]
        rows.append(
            [line["row"], line["device"], *cells, PLACES[best], line["auto"], str(len(rates))]
        )
    header = ["envs and network", "server on", *PLACES, "fastest", "auto took", "rounds"]
    return [
        "Env steps a second that IMPALA learned from; in parentheses the ratio to the fastest "
        "place, with its 95% interval.",
        table(header, rows),
    ]


def newest(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest line of each device and row."""
    found = {(line["device"], line["row"]): line for line in lines}
    return [found[at, row] for at in ("cpu", "cuda") for row in ROWS if (at, row) in found]


def _cell(rates: Any, place: int, best: int) -> str:
    mean = f"{rates[:, place].mean():,.0f}"
    if place == best:
        return mean
    ratio = paired_ratio(rates[:, place], rates[:, best])
    return f"{mean} ({ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}])"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--device", default="cpu", help="of the inference server")
    parser.add_argument("--seconds", type=float, default=TIME_S, help="of a race")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    sys.path.append(str(PEERS))
    os.environ["PYTHONPATH"] = os.pathsep.join((str(PEERS), os.environ.get("PYTHONPATH", "")))
    if not options.page_only:
        for row in options.only:
            line = measured(row, options.device, options.seconds)
            append(RESULTS, VERSION, line)
            print(json.dumps({**line, "rates": np.mean(line["rates"], axis=0).round().tolist()}))
    lines = newest(read(RESULTS))
    write_page(
        options.markdown,
        "Where the policy acts",
        page(lines),
        "benchmarks/policy_places.py",
        machine=machines(lines),
    )


if __name__ == "__main__":
    main()
