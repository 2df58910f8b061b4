"""Record blocks of loops against themselves, beside four kinds of neighbours.

    python benchmarks/gate_blocks.py --hours 2

Each line of docs/benchmarks/gate_blocks.jsonl is one launch of two processes of the same loop, with
what disturbed them. Its blocks are summed by tens: [side, own time, wall time, iterations], times
in µs; own time is what `hotloop.repeat.estimate.own_ns` leaves of a block. A call goes on with the
loop and the neighbours that have the fewest launches; a broken-off one loses the launch it was at.
`gate_errors.py` draws its experiments from this file.
"""

import argparse
import collections
import time
from pathlib import Path

import numpy as np

from gate_noise import BOUND_BY_PROCESSOR, NOISES, OTHERS, neighbours, side_text
from hotloop.loop.host import host_facts
from hotloop.repeat.command_launcher import CommandLauncher
from hotloop.repeat.estimate import own_ns
from hotloop.repeat.loop_launcher import LoopLauncher
from hotloop.repeat.record import Record
from hotloop.repeat.sides import parse_side
from league.process import append, read

RESULTS = Path(__file__).parents[1] / "docs/benchmarks/gate_blocks.jsonl"
VERSION = "2"
TOGETHER = 10
IN_A_ROW = 10  # launches, before the next loop or neighbour


def record_launches(loop: str, noise: str, count: int, seed: int) -> None:
    """Record some launches in a row."""
    facts = host_facts()
    machine = {name: facts[name] for name in ("processor", "cores", "date")}
    sides = [parse_side(name, side_text(loop)) for name in "AB"]
    launcher = CommandLauncher(sides, seed) if loop == "command" else LoopLauncher(sides, 120, seed)
    record = Record()
    with neighbours(noise, seed):
        for number in range(count):
            begin, first = time.perf_counter(), len(record.rows)
            launcher.launch(number, record, lambda: None)
            append(
                RESULTS,
                VERSION,
                {
                    "loop": loop,
                    "noise": noise,
                    "row": seed,
                    "seconds": round(time.perf_counter() - begin, 2),
                    **machine,
                    "blocks": summed(record, first),
                },
            )


def summed(record: Record, first: int) -> list[list[int]]:
    """The blocks from a row on, ten of a side in one."""
    columns = {name: values[first:] for name, values in record.arrays().items()}
    numbers = np.stack(
        [own_ns(columns) / 1000, columns["wall_ns"] / 1000, columns["iterations"]], 1
    )
    found = []
    for side in (0, 1):
        of_side = numbers[columns["side"] == side]
        for start in range(0, len(of_side), TOGETHER):
            total = of_side[start : start + TOGETHER].sum(0)
            found.append([side, *(round(each) for each in total)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0, help="of all calls together")
    parser.add_argument("--minutes", type=float, default=None, help="of this call")
    options = parser.parse_args()
    begin = time.monotonic()
    while True:
        lines = read(RESULTS)
        if sum(line["seconds"] for line in lines) > options.hours * 3600:
            return
        if options.minutes is not None and time.monotonic() - begin > options.minutes * 60:
            return
        counts = collections.Counter((line["loop"], line["noise"]) for line in lines)
        loop, noise = min(
            ((loop, noise) for noise in NOISES for loop in (*BOUND_BY_PROCESSOR, *OTHERS)),
            key=lambda pair: counts[pair],
        )
        record_launches(loop, noise, IN_A_ROW, len(lines))


if __name__ == "__main__":
    main()
