"""You will see the stages of a script's own `for` loop measured, the script otherwise unchanged.

    hotloop benchmark examples/02_stages.py --seconds 5
    hotloop simplify  examples/02_stages.py --budget 10

The second way in. Run alone (python examples/02_stages.py) the script does what it always did;
a stage costs it about 100 ns a call.
"""

import time

import hotloop


@hotloop.stage("fetch", effect="pure", kind="io")
def fetch(step: int) -> list[int]:
    time.sleep(0.002)  # a disk, a network
    return list(range(step % 7, 2000))


@hotloop.stage("decode", effect="pure")
def decode(raw: list[int]) -> list[float]:
    return [x / 255 for x in raw]


@hotloop.stage("train")  # says nothing of its effect: it is timed and delayed, never replaced
def train(batch: list[float]) -> float:
    return sum(x * x for x in batch)


def main() -> None:
    loss = 0.0
    for step in range(8000):
        loss = train(decode(fetch(step)))
    print(f"loss {loss:.1f}")


if __name__ == "__main__":
    main()
