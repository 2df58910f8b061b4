"""What does it cost a script that its parts are recognised, while nothing is measured?

The places of the libraries are put under stages and put back again, in turns, in one process. Of a
single call the difference is what a wrapped call costs; of a whole training it is what the rest of
the script loses. Nested modules are the worst case: every one of them is called through the place.
All compute in one thread and wait for nothing: their processor time is their time on a quiet
machine.

    python benchmarks/recognition_cost.py --markdown docs/benchmarks/recognition_cost.md
"""

import argparse
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import thread_time_ns

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotloop.loop.arm import OFF, REAL, Arm
from hotloop.loop.control import process_control
from hotloop.loop.figures import Interval
from hotloop.recognise.recognition import Recognition
from tables import median_interval, table, write_page

CALL_NS, SPEED = 1_000, 0.995


@dataclass(frozen=True)
class Turns:
    """How often and how long both sides run; times in seconds.

    warm_s: what the interpreter has learned of classes is void when places come or go, and it
    learns again as often as code is run. A script has its places from its imports on.
    """

    count: int
    warm_s: float
    timed_s: float


OF_CALLS = Turns(60, 0.1, 0.2)
# A two-hundredth is harder to see, and an iteration runs most of its code once: after 0.1 s of
# warm-up trainings seemed to lose 0.7%, of which nothing is left after 0.8 s.
OF_TRAININGS = Turns(300, 0.8, 0.4)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    process_control().set(Arm("idle", rest=OFF))
    calls = {name: measure(make) for name, make in CALLS.items()}
    trainings = {name: measure(make, OF_TRAININGS) for name, make in TRAININGS.items()}
    parts = [
        "Nanoseconds that a recognised place adds to a call: median over "
        f"{OF_CALLS.count} turns with its 95% interval. The target is 1,000.",
        table(
            ["call", "ns alone", "ns more", ""],
            [
                [name, f"{alone:,.0f}", text(more), costs(more)]
                for name, (alone, more, _) in calls.items()
            ],
        ),
        "The speed of whole trainings, relative to the script alone in the same turn, over "
        f"{OF_TRAININGS.count} turns. The target is 99.5%.",
        table(
            ["training", "µs an iteration alone", "relative speed", ""],
            [
                [
                    name,
                    f"{alone / 1e3:,.0f}",
                    f"{speed.value:.2%} [{speed.low:.2%}, {speed.high:.2%}]",
                    said(speed),
                ]
                for name, (alone, _, speed) in trainings.items()
            ],
        ),
    ]
    title = "What recognition costs while nothing is measured"
    write_page(chosen.markdown, title, parts, "benchmarks/recognition_cost.py")


def measure(
    make: Callable[[], Callable[[], object]], turns: Turns = OF_CALLS
) -> tuple[float, Interval, Interval]:
    """The ns of a call alone, the ns that recognition adds, and the relative speed with it."""
    call = make()
    run_for(call, turns.warm_s)
    alone, changed = np.zeros(turns.count), np.zeros(turns.count)
    for turn in range(turns.count):
        for with_places in ((False, True), (True, False))[turn % 2]:
            with recognised(call) if with_places else contextlib.nullcontext():
                run_for(call, turns.warm_s)
                (changed if with_places else alone)[turn] = run_for(call, turns.timed_s)
    relative = median_interval(alone / changed)
    return float(np.median(alone)), median_interval(changed - alone), relative


@contextlib.contextmanager
def recognised(call: Callable[[], object]) -> Iterator[None]:
    """The places under stages, as they are once iterations were found."""
    control = process_control()
    with Recognition(control) as recognition:
        control.set(Arm("looking", rest=REAL))
        call()
        control.set(Arm("idle", rest=OFF))
        control.drain_events()
        recognition.drop_unused()
        yield


def run_for(call: Callable[[], object], seconds: float) -> float:
    """Call again and again for so long; return the ns of processor time of a call."""
    calls, begin = 0, thread_time_ns()
    while (passed := thread_time_ns() - begin) < seconds * 1e9:
        for _ in range(10):
            call()
        calls += 10
    return passed / max(calls, 1)


def env_step() -> Callable[[], object]:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=1)
    return lambda: env.step(0) if abs(env.state[2]) < 0.2 else env.reset()


def module_call() -> Callable[[], object]:
    module, x = nn.Identity(), torch.zeros(1)
    return lambda: module(x)


def optimiser_step() -> Callable[[], object]:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.0).step


def next_batch() -> Callable[[], object]:
    loader = DataLoader(TensorDataset(torch.zeros(100_000, 1)), batch_size=1)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    return lambda: next(batches)


def supervised() -> Callable[[], object]:
    """One iteration of a small training: calls are short, which is the worst case."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(6)))
    adam = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 64)

    def iterate() -> None:
        adam.zero_grad()
        model(x).square().mean().backward()
        adam.step()

    return iterate


def acting() -> Callable[[], object]:
    """One step of a rollout with a small policy."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    seen = [torch.as_tensor(envs.reset(seed=1)[0])]
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def iterate() -> None:
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=policy(seen[0])).sample()
        seen[0] = torch.as_tensor(envs.step(actions.numpy())[0])

    return iterate


CALLS = {
    "Env.step": env_step,
    "Module.__call__": module_call,
    "Optimizer.step": optimiser_step,
    "next of a DataLoader": next_batch,
}
TRAININGS = {"six layers, batches of 64": supervised, "acting in 8 CartPoles": acting}


def costs(more: Interval) -> str:
    if more.high <= CALL_NS:
        return "reached"
    return "missed" if more.low > CALL_NS else "cannot say"


def said(speed: Interval) -> str:
    if speed.low >= SPEED:
        return "reached"
    return "missed" if speed.high < SPEED else "cannot say"


def text(figure: Interval) -> str:
    return f"{figure.value:.0f} [{figure.low:.0f}, {figure.high:.0f}]"


if __name__ == "__main__":
    main()
