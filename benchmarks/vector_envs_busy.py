"""How fast are envs in worker processes while other programs compute on the same cores?

A vector env is rarely alone: the user's own learner computes beside it, a second run, a browser.
Every system steps its envs in a process of its own, and all of a row take turns in random order,
beside so many processes that compute without end, or beside a learner in torch that counts its
updates. What a system waits with, and how soon it is woken, decides here.

    pip install -c constraints.txt 'hotloop[peers]'
    python benchmarks/vector_envs_busy.py --markdown docs/benchmarks/vector_envs_busy.md
    python benchmarks/vector_envs_busy.py --against ../an-older-checkout

--against adds the process backend of another checkout of this repository.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 20
ROUNDS_OPEN = 4  # then all systems are opened anew: each opening has a speed of its own, by 3%
SECONDS = 0.25  # of each system in each round
WARM_UP_STEPS = 5
BOOTSTRAPS = 4000
OURS, AUTO = "hotloop process", "hotloop auto"
OLD, PEER = "hotloop process, before", "Gymnasium Async"
BESIDE = ("nobody", "1 busy", "2 busy")


@dataclass(frozen=True)
class Row:
    """So many envs, beside whom. env: an id, or the µs that each works."""

    num_envs: int
    env: str
    beside: str

    @property
    def name(self) -> str:
        """As it stands in the tables."""
        return f"{self.num_envs} x {self.env}" + (" µs" if self.env.isdigit() else "")


SIZES = (
    (16, "10"),
    (4, "100"),
    (4, "300"),
    (4, "1000"),
    (64, "CartPole-v1"),
    (4, "MiniGrid-Empty-8x8-v0"),
)
ROWS = [
    *(Row(num_envs, env, beside) for num_envs, env in SIZES for beside in BESIDE),
    *(Row(num_envs, env, "learner") for num_envs, env in ((16, "10"), (4, "300"))),
]


# --- one system in a process of its own ----------------------------------------------------------


def serve(system: str, num_envs: int, env: str) -> None:
    """Make the envs, then answer each line `SECONDS` with ms a step, until there are no more."""
    import hotloop

    envs: Any
    make = maker(env)
    if system == PEER:
        import gymnasium

        envs = gymnasium.vector.AsyncVectorEnv([make] * num_envs)
    else:
        envs = hotloop.make_vec(make, num_envs, backend="auto" if system == AUTO else "process")
    envs.reset(seed=0)
    actions = np.zeros(num_envs, np.int64)
    workers = getattr(envs, "num_workers", None)
    print("serial" if workers is None else f"process x {workers}", flush=True)
    for line in sys.stdin:
        for _ in range(WARM_UP_STEPS):
            envs.step(actions)
        steps, start, seconds = 0, time.perf_counter(), float(line)
        while (passed := time.perf_counter() - start) < seconds:
            envs.step(actions)
            steps += 1
        print(passed / steps * 1e3, flush=True)
    envs.close()


def maker(env: str) -> Callable[[], Any]:
    """What makes one env."""
    if not env.isdigit():
        import gymnasium

        if env.startswith("MiniGrid"):
            # Its missions are a space of its own, which Gymnasium's vector envs do not know.
            from minigrid.wrappers import ImgObsWrapper

            return lambda: ImgObsWrapper(gymnasium.make(env))
        return partial(gymnasium.make, env)
    from hotloop.testing.synthetic import Duration, SyntheticEnv, SyntheticSettings

    settings = SyntheticSettings(step=Duration(int(env) * 1e-6, kind="busy"))
    return partial(SyntheticEnv, settings)


@dataclass
class Server:
    """A system that waits to be asked."""

    process: subprocess.Popen[str]
    choice: str = ""

    def ms_per_step(self, seconds: float) -> float:
        """Let it step for so long."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(self.answer())

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a system ended before it answered; what it printed stands above")
        return line.strip()


@contextlib.contextmanager
def started(system: str, row: Row, source: Path) -> Iterator[Server]:
    command = [sys.executable, __file__, "--serve", system, str(row.num_envs), row.env]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    server = Server(process)
    try:
        server.choice = server.answer()
        yield server
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- whoever else computes -----------------------------------------------------------------------


def spin() -> None:
    while True:
        pass


def learn(updates: Any) -> None:
    """A network of two layers that learns with two threads; counts its updates."""
    import torch

    torch.set_num_threads(2)
    network = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
    )
    optimizer = torch.optim.SGD(network.parameters(), 1e-6)
    batch = torch.randn(512, 256)
    while True:
        optimizer.zero_grad()
        network(batch).square().mean().backward()
        optimizer.step()
        updates.value += 1


@contextlib.contextmanager
def beside(whom: str) -> Iterator[Any]:
    """Start the neighbours; yields a learner's count of updates, None for others."""
    context = multiprocessing.get_context("spawn")
    updates = context.Value("q", 0, lock=False) if whom == "learner" else None
    if whom == "learner":
        targets: list[tuple[Any, tuple[Any, ...]]] = [(learn, (updates,))]
    else:
        targets = [(spin, ())] * (int(whom.split()[0]) if "busy" in whom else 0)
    neighbours = [context.Process(target=f, args=args, daemon=True) for f, args in targets]
    for neighbour in neighbours:
        neighbour.start()
    try:
        while updates is not None and updates.value < 20:
            time.sleep(0.05)
        yield updates
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.join()


# --- a row ---------------------------------------------------------------------------------------


@dataclass
class Measured:
    """ms a step of each system in each round; beside a learner its updates/s too.

    choice: what `auto` chose.
    """

    row: Row
    ms: dict[str, list[float]] = field(default_factory=dict)
    updates: dict[str, list[float]] = field(default_factory=dict)
    choice: str = ""


def measure(row: Row, sources: dict[str, Path], rounds: int, seconds: float) -> Measured:
    measured = Measured(row, {name: [] for name in sources}, {name: [] for name in sources})
    rng = np.random.default_rng(0)
    with contextlib.ExitStack() as stack:
        updates = stack.enter_context(beside(row.beside))  # first: `auto` looks at who is there
        choices: set[str] = set()
        while len(measured.ms[AUTO]) < rounds:
            with contextlib.ExitStack() as opened:
                servers = {
                    name: opened.enter_context(started(name, row, source))
                    for name, source in sources.items()
                }
                choices.add(servers[AUTO].choice)
                for _ in range(ROUNDS_OPEN):
                    take_turns(measured, servers, rng.permutation(list(servers)), updates, seconds)
        measured.choice = ", ".join(sorted(choices))
    return measured


def take_turns(
    measured: Measured,
    servers: dict[str, Server],
    names: Sequence[str],
    updates: Any,
    seconds: float,
) -> None:
    for name in names:
        before, start = updates.value if updates else 0, time.perf_counter()
        measured.ms[name].append(servers[name].ms_per_step(seconds))
        if updates:
            passed = time.perf_counter() - start
            measured.updates[name].append((updates.value - before) / passed)


def ratio(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Of means, with a bootstrap interval over the openings."""
    first, second = (np.reshape(values, (-1, ROUNDS_OPEN)).mean(axis=1) for values in (one, other))
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(first), size=(BOOTSTRAPS, len(first)))
    low, high = np.quantile(first[drawn].mean(axis=1) / second[drawn].mean(axis=1), [0.025, 0.975])
    return float(first.mean() / second.mean()), float(low), float(high)


def page_parts(rows: Sequence[Measured]) -> list[str]:
    # Not above: a system that runs on an older checkout would import that one's package for it.
    from tables import ratio_text, table

    systems = list(rows[0].ms)
    others = [name for name in (PEER, OLD) if name in systems]
    header = ["envs", "beside", *(f"{name}, ms" for name in systems), "auto is"]
    header += [f"process / {name}" for name in others] + [f"auto / {PEER}"]
    body = []
    for found in rows:
        line = [found.row.name, found.row.beside]
        line += [f"{np.mean(found.ms[name]):.3g}" for name in systems] + [found.choice]
        line += [ratio_text(ratio(found.ms[OURS], found.ms[name])) for name in others]
        line += [ratio_text(ratio(found.ms[AUTO], found.ms[PEER]))]
        body.append(line)
    parts = [
        "Mean ms for one step of all envs, in turns within each round; every system is opened anew "
        f"after {ROUNDS_OPEN} rounds. Ratios of means, with a bootstrap interval over these "
        "openings. Busy: processes that compute without end.",
        table(header, body),
    ]
    idle = {found.row.name: found for found in rows if found.row.beside == "nobody"}
    slower = [
        [found.row.name, found.row.beside]
        + [f"{np.mean(found.ms[n]) / np.mean(idle[found.row.name].ms[n]):.2f}" for n in systems]
        for found in rows
        if found.row.beside != "nobody" and found.row.name in idle
    ]
    if slower:
        parts += ["Times the same system's own step beside nobody:"]
        parts += [table(["envs", "beside", *systems], slower)]
    learners = [found for found in rows if found.row.beside == "learner"]
    if learners:
        parts += ["Updates a second of the learner (torch, two threads) meanwhile:"]
        parts += [
            table(
                ["envs", *systems, *(f"process / {name}" for name in others), f"auto / {PEER}"],
                [
                    [
                        found.row.name,
                        *(f"{np.mean(found.updates[name]):.0f}" for name in systems),
                        *(
                            ratio_text(ratio(found.updates[OURS], found.updates[name]))
                            for name in others
                        ),
                        ratio_text(ratio(found.updates[AUTO], found.updates[PEER])),
                    ]
                    for found in learners
                ],
            )
        ]
    return parts


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--markdown", type=Path)
    options.add_argument("--against", type=Path, metavar="CHECKOUT")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--seconds", type=float, default=SECONDS)
    options.add_argument("--raw", type=Path, help="keeps rows; only those not in it are measured")
    options.add_argument("--only", default="", help="rows whose name and neighbours contain this")
    options.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        serve(chosen.serve[0], int(chosen.serve[1]), chosen.serve[2])
        return
    here = Path(__file__).resolve().parents[1] / "src"
    sources = {OURS: here, AUTO: here, PEER: here}
    if chosen.against:
        sources[OLD] = chosen.against.resolve() / "src"
    kept = json.loads(chosen.raw.read_text()) if chosen.raw and chosen.raw.exists() else {}
    found = []
    for row in ROWS:
        key = f"{row.name}, {row.beside}"
        if chosen.only not in key:
            continue
        if key not in kept:
            measured = measure(row, sources, chosen.rounds, chosen.seconds)
            kept[key] = {k: v for k, v in vars(measured).items() if k != "row"}
            if chosen.raw:
                chosen.raw.write_text(json.dumps(kept))
            means = {name: round(float(np.mean(ms)), 3) for name, ms in measured.ms.items()}
            print(f"{key}: {json.dumps(means)} {measured.choice}", file=sys.stderr, flush=True)
        found.append(Measured(row, **kept[key]))
    from tables import write_page

    parts = [f"{chosen.rounds} rounds of {chosen.seconds:g} s.", *page_parts(found)]
    made_by = "benchmarks/vector_envs_busy.py"
    write_page(chosen.markdown, "Vector envs beside other programs", parts, made_by)


if __name__ == "__main__":
    main()
