"""You will see the rate of a script that knows nothing of stages, from one marked loop.

    hotloop benchmark examples/03_script.py --seconds 5
    hotloop benchmark examples/03_script.py --seconds 5 -- --unmarked

The third way in. With its loop marked, the script has iterations and rates; unmarked, hotloop
still tells the processor time, the memory and the wall time of the whole process.
"""

import sys
import time
from collections.abc import Iterator

import hotloop


def batches(count: int) -> Iterator[list[float]]:
    for k in range(count):
        time.sleep(0.001)
        yield [float(k)] * 1024


def main() -> None:
    source = batches(1500)
    if "--unmarked" not in sys.argv:
        source = hotloop.iterations(source, unit="samples", units=len)
    total = 0.0
    for batch in source:
        total += sum(x * 0.5 for x in batch)
    print(f"total {total:.0f}")


if __name__ == "__main__":
    main()
