"""How many env steps a second does each vector env make, beside those of its peers?

Every cell is one kind of env and a number of them. All systems of a cell are opened at once where
they fit and take turns in random order, with the same random actions, so that a slow minute of the
machine hits all of them; a cell of 256 envs opens them one by one in every round. Figures are
medians over rounds; ratios are medians of the rounds' own ratios, with a bootstrap interval. What
`limits` measures is no system: it is what any with worker processes can have.

    pip install -c constraints.txt 'hotloop[peers]'
    python benchmarks/vector_envs.py --markdown docs/benchmarks/vector_envs.md
"""

import argparse
import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil

import hotloop
import limits
from hotloop.testing.synthetic import Duration, SyntheticEnv, SyntheticSettings
from tables import ratio_text, table, write_page

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for what is imported later, and for workers
SIZES = (1, 8, 64, 256)
ROUNDS = 7
LARGE_ROUNDS = 2  # of a cell of more than 64 envs, whose systems are opened anew in each
SECONDS = 0.4  # of each system in each round
ACTIONS = 32  # batches of random actions, used in turn
BOOTSTRAPS = 2000


def pong() -> gymnasium.Env[Any, Any]:
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=4)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def native_pong(num_envs: int, batch_size: int) -> Any:
    """ale-py's own vector env: compiled, one thread a core."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv("pong", num_envs, batch_size=batch_size)


def synthetic(**settings: Any) -> gymnasium.Env[Any, Any]:
    return SyntheticEnv(SyntheticSettings(**settings))


@dataclass(frozen=True)
class Kind:
    """A kind of env, what EnvPool calls it, and its own vector env of (num_envs, batch_size)."""

    name: str
    make: Callable[[], Any]
    envpool: str | None = None
    native: Callable[[int, int], Any] | None = None


KINDS = (
    Kind("CartPole-v1", partial(gymnasium.make, "CartPole-v1"), "CartPole-v1"),
    Kind("1 ms of work", partial(synthetic, step=Duration(1e-3, kind="busy"))),
    Kind("10 ms of sleep", partial(synthetic, step=Duration(1e-2, precise=False))),
    Kind("Pong, 4 frames", pong, "Pong-v5", native_pong),
    Kind("0.5 MB observation", partial(synthetic, obs_bytes=500_000)),
)


@dataclass
class Stepper:
    """Something that steps `num_envs` envs at once."""

    step: Callable[[int], object]
    close: Callable[[], object]
    note: str = ""
    rate: Callable[[float], float] | None = None  # env steps/s, where not step by step


def action_batches(kind: Kind, num_envs: int) -> list[np.ndarray]:
    env = kind.make()
    space = env.action_space
    env.close()
    rng = np.random.default_rng(0)
    return [rng.integers(0, space.n, num_envs) for _ in range(ACTIONS)]


def gym_vector(envs: Any, actions: Sequence[np.ndarray], note: str = "") -> Stepper:
    envs.reset(seed=0)
    return Stepper(lambda i: envs.step(actions[i % ACTIONS]), envs.close, note)


def ours(backend: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    if backend == "auto":
        with contextlib.redirect_stderr(None):
            envs = hotloop.make_vec(kind.make, num_envs, backend=backend)
        workers = getattr(envs, "num_workers", None)
        return gym_vector(envs, actions, "serial" if workers is None else f"process x {workers}")
    workers = waiting_workers(kind, num_envs) if backend == "process" else None
    envs = hotloop.make_vec(kind.make, num_envs, backend=backend, num_workers=workers)
    return gym_vector(envs, actions)


def waiting_workers(kind: Kind, num_envs: int) -> int | None:
    """One worker a core for work; one an env, up to 256, where envs only wait, as `auto` does."""
    return min(num_envs, 256) if "sleep" in kind.name else None


def begun_envs(unwrapped: bool, kind: Kind, num_envs: int) -> list[Any]:
    envs = [kind.make() for _ in range(num_envs)]
    envs = [env.unwrapped for env in envs] if unwrapped else envs
    for i, env in enumerate(envs):
        env.reset(seed=i)
    return envs


def bare(unwrapped: bool, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    envs = begun_envs(unwrapped, kind, num_envs)

    def step(i: int) -> None:
        results = [env.step(a) for env, a in zip(envs, actions[i % ACTIONS].tolist(), strict=True)]
        np.stack([result[0] for result in results])
        for env, result in zip(envs, results, strict=True):
            if result[2] or result[3]:
                env.reset()

    return Stepper(step, lambda: [env.close() for env in envs])


def steps_alone(kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    """The least that any engine of Python envs in one process does: results are dropped."""
    envs = begun_envs(True, kind, num_envs)

    def step(i: int) -> None:
        for env, action in zip(envs, actions[i % ACTIONS].tolist(), strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return Stepper(step, lambda: [env.close() for env in envs])


def gymnasium_peer(name: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    return gym_vector(getattr(gymnasium.vector, name)([kind.make] * num_envs), actions)


def sb3_peer(name: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    from stable_baselines3.common import vec_env

    arguments = {"start_method": "fork"} if name == "SubprocVecEnv" else {}
    envs = getattr(vec_env, name)([kind.make] * num_envs, **arguments)
    envs.reset()
    return Stepper(lambda i: envs.step(actions[i % ACTIONS]), envs.close)


def tianshou_peer(name: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    import tianshou.env

    if name == "RayVectorEnv":
        start_ray()
    envs = getattr(tianshou.env, name)([kind.make] * num_envs)
    envs.reset()

    def step(i: int) -> None:
        _, _, terminated, truncated, _ = envs.step(actions[i % ACTIONS])
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            envs.reset(over)

    return Stepper(step, envs.close)


def torchrl_peer(kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    import torch
    from torchrl.envs import GymWrapper, ParallelEnv

    envs = ParallelEnv(
        num_envs,
        lambda: GymWrapper(kind.make(), categorical_action_encoding=True),
        mp_start_method="fork",
    )
    batches = [torch.from_numpy(batch) for batch in actions]
    state = {"now": envs.reset()}

    def step(i: int) -> None:
        state["now"]["action"] = batches[i % ACTIONS]
        _, state["now"] = envs.step_and_maybe_reset(state["now"])

    return Stepper(step, envs.close)


def envpool_peer(kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    import envpool

    assert kind.envpool is not None
    envs = envpool.make(kind.envpool, env_type="gymnasium", num_envs=num_envs)
    envs.reset()
    batches = [batch.astype(np.int32) for batch in actions]
    return Stepper(lambda i: envs.step(batches[i % ACTIONS]), envs.close)


def native(half: bool, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    """The env's own vector env alone; half: by batches of half of the envs, the first ready."""
    assert kind.native is not None
    size = num_envs // 2 if half else num_envs
    envs = kind.native(num_envs, size)
    envs.reset(seed=0)

    def step(i: int) -> None:
        for _ in range(num_envs // size):
            envs.step(actions[i % ACTIONS][:size])

    return Stepper(step, envs.close)


def carried(how: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    """It in ours: as a whole in this process or in a worker, or in two workers by half batches."""
    assert kind.native is not None
    if how != "halves":
        return gym_vector(
            hotloop.make_vec(partial(kind.native, num_envs, num_envs), backend=how), actions
        )
    half = num_envs // 2
    envs = hotloop.make_vec(
        partial(kind.native, half, half), 2, backend="process", num_workers=2, batch_size=half
    )
    envs.async_reset(seed=0)

    def step(i: int) -> None:
        for _ in range(2):
            infos = envs.recv()[4]
            envs.send(actions[i % ACTIONS][:half], infos["env_id"])

    return Stepper(step, envs.close)


def apart(kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    processes = limits.Apart(kind.make, num_envs, actions)
    return Stepper(lambda _: None, processes.close, rate=processes.rate)


def relay(kind: Kind, num_envs: int, actions: Sequence[np.ndarray]) -> Stepper:
    assert kind.native is not None
    other = limits.Relay(partial(kind.native, num_envs, num_envs), num_envs, (4, 84, 84))
    return Stepper(lambda i: other.step(actions[i % ACTIONS]), other.close)


def start_ray() -> None:
    import ray

    if not ray.is_initialized():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


OURS = ("serial", "process", "auto")
OURS_NAMED = tuple(f"hotloop {name}" for name in OURS)
Opener = Callable[[Kind, int, Sequence[np.ndarray]], Stepper]
STEPS_ALONE = "limit: steps alone"
APART = "limit: a process a core, apart"
SYSTEMS: dict[str, Opener] = {
    **{f"hotloop {name}": partial(ours, name) for name in OURS},
    "bare loop": partial(bare, False),
    "bare loop, unwrapped": partial(bare, True),
    "Gymnasium Sync": partial(gymnasium_peer, "SyncVectorEnv"),
    "Gymnasium Async": partial(gymnasium_peer, "AsyncVectorEnv"),
    "SB3 Dummy": partial(sb3_peer, "DummyVecEnv"),
    "SB3 Subproc": partial(sb3_peer, "SubprocVecEnv"),
    "Tianshou Dummy": partial(tianshou_peer, "DummyVectorEnv"),
    "Tianshou Subproc": partial(tianshou_peer, "SubprocVectorEnv"),
    "Tianshou Shmem": partial(tianshou_peer, "ShmemVectorEnv"),
    "Tianshou Ray": partial(tianshou_peer, "RayVectorEnv"),
    "TorchRL Parallel": torchrl_peer,
    "EnvPool": envpool_peer,
    STEPS_ALONE: steps_alone,
    APART: apart,
    "ALE": partial(native, False),
    "ALE, half batches": partial(native, True),
    "hotloop serial, of ALE": partial(carried, "serial"),
    "hotloop process, of ALE": partial(carried, "process"),
    "hotloop process, of ALE, half batches": partial(carried, "halves"),
    "limit: relay of ALE": relay,
}
LIMITS = tuple(name for name in SYSTEMS if name.startswith("limit"))
# Not envs in Python: not what "the best peer with Python envs" means.
NATIVE = tuple(name for name in SYSTEMS if "ALE" in name)
COMPILED = ("EnvPool", *NATIVE)
NO_PEER = ("bare loop", "bare loop, unwrapped", *COMPILED, *OURS_NAMED, *LIMITS)
# One process or actor an env: what more of them costs here to start, or takes of memory.
MOST_ENVS = {"Tianshou Ray": 8, "TorchRL Parallel": 8}
LARGE_TOTAL_BYTES = 64 * 500_000


def left_out(system: str, kind: Kind, num_envs: int) -> str | None:
    """Why a system is not in a cell; None if it is."""
    if system == "EnvPool" and kind.envpool is None:
        return "Python envs"
    if system in NATIVE and (kind.native is None or num_envs < 2):
        return "Atari, two envs and more"
    if num_envs > MOST_ENVS.get(system, num_envs):
        return f"one process an env: at most {MOST_ENVS[system]} here"
    of_cartpole = system.startswith("bare") or system in (STEPS_ALONE, APART)
    if of_cartpole and kind.name != "CartPole-v1":
        return "CartPole only"
    if system == APART and num_envs < 8:
        return "as many envs as cores and more"
    return None


@dataclass
class Cell:
    """What one cell measured: a rate for each system and round."""

    kind: Kind
    num_envs: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def ratio(self, system: str, to: str) -> tuple[float, float, float]:
        """Median over rounds, with a bootstrap interval."""
        ratios = np.array(self.rates[system]) / np.array(self.rates[to])
        rng = np.random.default_rng(0)
        drawn = np.median(rng.choice(ratios, (BOOTSTRAPS, len(ratios))), axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(np.median(ratios)), float(low), float(high)

    def best(self, systems: Sequence[str]) -> str:
        """The fastest of some by median."""
        return max((s for s in systems if s in self.rates), key=lambda s: np.median(self.rates[s]))


def measure(kind: Kind, num_envs: int, rounds: int, seconds: float) -> Cell:
    cell = Cell(kind, num_envs)
    actions = action_batches(kind, num_envs)
    rng = np.random.default_rng(num_envs)
    systems = [name for name in SYSTEMS if left_out(name, kind, num_envs) is None]
    at_once = [name for name in systems if num_envs <= 64]
    with contextlib.ExitStack() as stack:
        opened: dict[str, Stepper] = {}
        for name in at_once:
            with reported(cell, name):
                opened[name] = stack.enter_context(open_one(name, kind, num_envs, actions))
        for _ in range(rounds):
            for name in rng.permutation(systems).tolist():
                if name in at_once and name not in opened:
                    continue
                with reported(cell, name):
                    if name in opened:
                        rate = rate_of(opened[name], num_envs, seconds)
                    else:
                        with open_one(name, kind, num_envs, actions) as stepper:
                            rate = rate_of(stepper, num_envs, seconds)
                            cell.notes |= {name: stepper.note} if stepper.note else {}
                    cell.rates.setdefault(name, []).append(rate)
        cell.notes |= {name: stepper.note for name, stepper in opened.items() if stepper.note}
    cell.rates = {name: rates for name, rates in cell.rates.items() if len(rates) == rounds}
    return cell


@contextlib.contextmanager
def open_one(
    name: str, kind: Kind, num_envs: int, actions: Sequence[np.ndarray]
) -> Iterator[Stepper]:
    stepper = SYSTEMS[name](kind, num_envs, actions)
    try:
        yield stepper
    finally:
        with contextlib.suppress(Exception):
            stepper.close()


@contextlib.contextmanager
def reported(cell: Cell, name: str) -> Iterator[None]:
    """A system that fails is named in the page, not in the way."""
    try:
        yield
    except Exception as error:
        cell.notes[name] = f"failed: {type(error).__name__}: {str(error)[:80]}"


def rate_of(stepper: Stepper, num_envs: int, seconds: float) -> float:
    """Env steps a second, after a step or two to warm up."""
    if stepper.rate is not None:
        return stepper.rate(seconds)
    stepper.step(0)
    stepper.step(1)
    start, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds or steps < 2:
        stepper.step(steps)
        steps += 1
    return steps * num_envs / passed


def rate_text(rates: Sequence[float]) -> str:
    low, median, high = np.quantile(rates, [0.25, 0.5, 0.75])
    unit, size = ("k", 1e3) if median >= 1e4 else ("", 1.0)
    return f"{median / size:,.4g}{unit} [{low / size:,.4g}, {high / size:,.4g}]"


def cell_table(kind: Kind, cells: Sequence[Cell]) -> str:
    header = [kind.name, *(f"{cell.num_envs} envs" for cell in cells)]
    rows = []
    for name in SYSTEMS:
        row = [name]
        for cell in cells:
            why = left_out(name, kind, cell.num_envs)
            note = f" ({cell.notes[name]})" if name in cell.notes else ""
            row.append(
                rate_text(cell.rates[name]) + note
                if name in cell.rates
                else f"– {why or cell.notes.get(name, 'not measured')}"
            )
        if any(not entry.startswith("–") for entry in row[1:]):
            rows.append(row)
    return table(header, rows)


def summary_table(cells: Sequence[Cell]) -> str:
    """In each cell: our best against the best peer with Python envs, and auto against our best."""
    rows = []
    for cell in cells:
        peers = [name for name in cell.rates if name not in NO_PEER]
        if not peers or not set(OURS_NAMED) <= cell.rates.keys():
            continue  # only some systems were asked for
        peer = cell.best(peers)
        mine = cell.best(["hotloop serial", "hotloop process"])
        rows.append(
            [
                f"{cell.kind.name}, {cell.num_envs}",
                mine,
                peer,
                ratio_text(cell.ratio(mine, peer)),
                ratio_text(cell.ratio("hotloop auto", peer)),
                ratio_text(cell.ratio("hotloop auto", mine)),
                cell.notes.get("hotloop auto", ""),
            ]
        )
    header = ["cell", "our best", "best peer", "ours / peer", "auto / peer", "auto / best", "auto"]
    return table(header, rows) if rows else ""


def targets(cells: Sequence[Cell]) -> str:
    """The ratios that this project wants at 64 CartPoles, and whether it has them."""
    cell = next(c for c in cells if c.kind.name == "CartPole-v1" and c.num_envs == 64)
    wanted = [
        ("hotloop serial", "bare loop", 0.97),
        ("hotloop serial", "bare loop, unwrapped", 0.97),
        ("hotloop serial", "Gymnasium Sync", 1.15),
        ("bare loop, unwrapped", "Gymnasium Sync", None),
        (STEPS_ALONE, "Gymnasium Sync", None),
        ("hotloop process", "Gymnasium Async", 10.0),
        ("hotloop process", "Tianshou Shmem", 12.0),
        ("hotloop process", "hotloop serial", 1.6),
        (APART, "hotloop serial", None),
    ]
    rows = []
    for system, to, least in wanted:
        if system not in cell.rates or to not in cell.rates:
            continue
        ratio = cell.ratio(system, to)
        wanted_text, verdict = "–", "to be had"
        if least is not None:
            wanted_text, verdict = f"{least:g}", "reached" if ratio[0] >= least else "missed"
        rows.append([f"{system} / {to}", wanted_text, ratio_text(ratio), verdict])
    return table(["at 64 CartPoles", "wanted", "ratio", ""], rows)


def carried_table(cells: Sequence[Cell]) -> str:
    """What it costs to have the envs' own vector env in ours."""
    pairs = (
        ("hotloop serial, of ALE", "ALE"),
        ("hotloop process, of ALE", "ALE"),
        ("hotloop process, of ALE, half batches", "ALE, half batches"),
        ("limit: relay of ALE", "ALE"),
    )
    rows = []
    for cell in cells:
        for mine, alone in pairs:
            if mine in cell.rates and alone in cell.rates:
                ratio = cell.ratio(mine, alone)
                reached = "reached" if ratio[0] >= 0.95 else "missed"
                if mine in LIMITS:
                    reached = "to be had"
                name = f"{cell.kind.name}, {cell.num_envs}"
                rows.append([name, mine, ratio_text(ratio), reached])
    header = ["cell", "the env's own vector env in ours", "over it alone (0.95 wanted)", ""]
    return table(header, rows) if rows else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--raw", type=Path, help="keeps cells; only those not in it are measured")
    parser.add_argument("--kinds", nargs="*", default=[kind.name for kind in KINDS])
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--cells", nargs="*", help="only these, such as 'CartPole-v1, 64'")
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--title", default="Vector envs beside their peers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--large-rounds", type=int, default=LARGE_ROUNDS, help="of 256 envs")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers' own, many
    for name in set(SYSTEMS) - set(options.systems):
        del SYSTEMS[name]
    parts, cells = [], []
    kept = json.loads(options.raw.read_text()) if options.raw and options.raw.exists() else {}
    for kind in (kind for kind in KINDS if kind.name in options.kinds):
        row = []
        for size in options.sizes:
            key = f"{kind.name}, {size}"
            if options.cells and key not in options.cells:
                continue
            if key not in kept:
                start = time.perf_counter()
                rounds = options.rounds if size <= 64 else options.large_rounds
                cell = measure(kind, size, rounds, options.seconds)
                kept[key] = {"rates": cell.rates, "notes": cell.notes}
                if options.raw:
                    options.raw.write_text(json.dumps(kept))
                took, load = time.perf_counter() - start, psutil.getloadavg()[0]
                print(f"{key}: {took:.0f} s, load {load:.1f}", file=sys.stderr)
            row.append(Cell(kind, size, **kept[key]))
        if row:
            parts.append(cell_table(kind, row))
        cells += row
    asked = [
        targets(cells)
        if any(c.kind.name == "CartPole-v1" and c.num_envs == 64 for c in cells)
        else "",
        summary_table(cells),
        carried_table(cells),
    ]
    how = (
        "Env steps a second, random actions; median over rounds and the middle half of them. "
        "Ratios are medians of the rounds' own, with a 95% bootstrap interval. EnvPool steps "
        "compiled envs, and is not among the peers that `best peer` is chosen from. `hotloop "
        "process` has one worker a core, and one an env where envs only sleep. PufferLib 3.0.0 is "
        "not here: its build downloads what this machine cannot reach."
    )
    write_page(
        options.markdown,
        options.title,
        [how, *(part for part in asked if part), *parts],
        "python benchmarks/vector_envs.py",
    )


if __name__ == "__main__":
    main()
