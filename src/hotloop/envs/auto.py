"""Which backend is fastest for an env: a measurement, not a belief.

One env is stepped in a process of its own, to learn what a step takes, how it varies, how much of
it is work and how much is waiting, and how large an observation is. From that follows what each
backend would need for a step of all envs. Where two come close, or other programs keep cores busy,
some are built and race.
"""

import logging
import math
import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv as AnyVectorEnv

from hotloop.data.layout import Layout
from hotloop.envs.carrier import make_serial
from hotloop.envs.crew import pickled
from hotloop.envs.placement import Neighbours, whole_cores
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.vector import VectorEnv
from hotloop.errors import WorkerError

_LOG = logging.getLogger("hotloop")
PROBE_S = 0.6
RACE_S = 0.25  # for each that races
LITTLE = 0.2  # fewer busy cores than this are not worth a word
CLOSE = 0.5  # a race is run where the second is expected to need at most so much more
# A step of all envs in workers costs this beside the envs' own steps: signals both ways, and the
# copies into shared memory and out of it. Measured on two cores; races correct what they can.
SIGNAL_S = 50e-6
BYTES_PER_S = 4e9
MAX_WAITING_WORKERS = 256
WAITS = 0.2  # an env that gives its core away less often a step is work
RARELY = 0.05  # less often than that, its 95th percentile knows no waiting


@dataclass(frozen=True)
class Probe:
    """What one env is like. `steps` is 1, or the envs that its vector env steps at once."""

    step_s: float  # median
    late_step_s: float  # 95th percentile
    busy: float  # the share of a step that is work of a processor
    obs_bytes: int
    make_s: float
    steps: int
    is_vector: bool = False  # the env is a vector env


@dataclass(frozen=True)
class Candidate:
    """A backend with its workers, and what a step of all envs would need, in seconds."""

    backend: str
    num_workers: int
    expected_s: float
    measured_s: float | None = None


@dataclass(frozen=True)
class Choice:
    """What `auto` chose, and from what."""

    backend: str
    num_workers: int | None
    envs_per_worker: int
    probe: Probe
    candidates: tuple[Candidate, ...]
    native: str | None = None  # how to ask for a native engine of the same env, where there is one
    others: float = 0.0  # cores that other programs kept busy meanwhile

    @property
    def reason(self) -> str:
        """The choice in one sentence."""
        p = self.probe
        kind = "work" if p.busy > 0.5 else "waiting"
        where = {
            "serial": "in this process",
            "process": f"in {self.num_workers} worker processes, {self.envs_per_worker} envs each",
            "ray": f"in {self.num_workers} Ray actors, {self.envs_per_worker} envs each",
        }[self.backend]
        others = ", ".join(
            f"{c.backend}{f' x {c.num_workers}' if c.backend != 'serial' else ''} "
            f"{(c.measured_s or c.expected_s) * 1e3:.3g} ms"
            f"{' measured' if c.measured_s else ' expected'}"
            for c in self.candidates
        )
        return (
            f"envs run {where}: a step takes {p.step_s * 1e6:.3g} µs (95th percentile "
            f"{p.late_step_s * 1e6:.3g}), mostly {kind}, an observation {p.obs_bytes:,} bytes; "
            f"a step of all: {others}"
            + (f"; other programs keep {self.others:.1f} cores busy" if self.others else "")
            + (f"; a native engine steps such envs faster: {self.native}" if self.native else "")
        )


def choose(
    fns: Sequence[Callable[[], Any]], settings: dict[str, Any], native: str | None = None
) -> Choice:
    """Measure for at most two seconds, and choose; the log says why, at level INFO.

    native: how to ask for a native engine of the same env, where there is one.
    Raises: what making or stepping the env raises; WorkerError if it takes its process along.
    """
    neighbours = Neighbours()
    probe = probe_env(fns[0], settings.get("context"))
    others = neighbours.busy_cores()
    others = 0.0 if others < LITTLE or math.isnan(others) else others
    asked = settings.get("num_workers")
    splits = settings.get("splits") or 1
    candidates = expect(probe, len(fns), whole_cores(), splits, asked, others)
    racers = _racers(candidates, others) if probe.make_s * len(fns) < RACE_S else []
    if racers:
        raced = _race(fns, racers, others)
        candidates = raced + [other for other in candidates if other not in racers]
    best = candidates[0]
    workers = None if best.backend == "serial" else best.num_workers
    choice = Choice(
        *(best.backend, workers, -(-len(fns) // best.num_workers), probe, tuple(candidates)),
        native=native,
        others=others,
    )
    _LOG.info("%s", choice.reason)
    return choice


def expect(
    probe: Probe,
    num_makers: int,
    cores: int,
    splits: int = 1,
    asked: int | None = None,
    others: float = 0.0,
) -> list[Candidate]:
    """What each backend would need for a step of all envs, best first.

    Work of W workers shares the cores, also with `others` processes that compute without end;
    waiting does not. asked: the only number of workers to consider. One process is left out where
    workers are asked for.
    """

    def at_once(workers: int) -> float:
        """Cores that so many workers have: the scheduler gives every process as much."""
        return min(workers, cores * workers / (workers + others))

    work, rest = probe.step_s * probe.busy, probe.step_s * (1 - probe.busy)
    copies = 2 * num_makers * probe.steps * probe.obs_bytes / BYTES_PER_S
    most = num_makers // splits
    if asked is not None:
        numbers = [asked]
    else:
        wanted = {cores, 2 * cores, *((4 * cores,) if others else ()), MAX_WAITING_WORKERS, most}
        numbers = sorted({min(most, n) for n in wanted})
        numbers = [n for n in numbers if n <= max(cores, MAX_WAITING_WORKERS)]
    candidates = []
    for workers in numbers:
        each = -(-num_makers // workers)
        # A batch waits for its slowest worker, and the sum of many steps varies less than one.
        late = (probe.late_step_s - probe.step_s) / max(1.0, each**0.5)
        seconds = each * rest + num_makers * work / at_once(workers) + max(0.0, late)
        signals = SIGNAL_S * (1 + workers / (4 * cores))
        candidates.append(Candidate("process", workers, seconds + signals + copies))
    if asked is None:
        seconds = num_makers * (rest + work / at_once(1))
        candidates.append(Candidate("serial", 1, seconds + copies / 2))
    return sorted(candidates, key=lambda candidate: candidate.expected_s)


def probe_env(fn: Callable[[], Any], context: str | None = None) -> Probe:
    """Make one env in a process of its own, and step it with random actions."""
    processes: Any = multiprocessing.get_context(context)
    forks = processes.get_start_method() == "fork"
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(
        target=_probe, args=(theirs, fn if forks else pickled(fn)), daemon=True
    )
    process.start()
    theirs.close()
    try:
        came, what = ours.recv()
    except EOFError:
        process.join()
        raise WorkerError(
            f"vector env: the first env ended its process (exit code {process.exitcode}) while it "
            "was measured: step one by hand to see why, or choose a backend yourself"
        ) from None
    finally:
        ours.close()
        process.join()
        process.close()
    if not came:
        raise what
    return what  # type: ignore[no-any-return]


def steps_per_s(envs: AnyVectorEnv[Any, Any, Any], seconds: float) -> float:
    """Env steps a second with random actions, over about `seconds`, after one step to warm up."""
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(16)]
    envs.reset(seed=0)
    envs.step(actions[0])
    start, steps = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        envs.step(actions[steps % 16])
        steps += 1
    return steps * envs.num_envs / passed


def make_candidate(fns: Sequence[Callable[[], Any]], candidate: Candidate) -> VectorEnv:
    """The vector env that a candidate stands for."""
    if candidate.backend == "serial":
        return make_serial(fns)
    return ProcessVectorEnv(fns, num_workers=candidate.num_workers)


def _racers(candidates: Sequence[Candidate], others: float) -> list[Candidate]:
    """Who is worth a race: the best two backends where they are close.

    Beside other programs expectations are rough, above all of many workers, which wait for cores
    again and again: there the best of each backend races, and workers, as few as are considered.
    """
    rivals = list({candidate.backend: candidate for candidate in reversed(candidates)}.values())
    rivals.sort(key=lambda candidate: candidate.expected_s)
    if others:
        fewest = min(candidates, key=lambda c: (c.backend == "serial", c.num_workers))
        rivals += [fewest] if fewest not in rivals else []
        return rivals if len(rivals) > 1 else []
    is_close = len(rivals) > 1 and rivals[1].expected_s < rivals[0].expected_s * (1 + CLOSE)
    return rivals[:2] if is_close else []


def _race(
    fns: Sequence[Callable[[], Any]], racers: Sequence[Candidate], others: float
) -> list[Candidate]:
    """Build them and let them take turns."""
    envs = [make_candidate(fns, racer) for racer in racers]
    rates: list[list[float]] = [[] for _ in racers]
    try:
        for _ in range(3):
            for k, racer in enumerate(envs):
                rates[k].append(steps_per_s(racer, RACE_S / 3))
    finally:
        for racing in envs:
            racing.close()
    raced = [
        # The best turn is the least disturbed; beside other programs being disturbed is the rule.
        Candidate(
            *(r.backend, r.num_workers, r.expected_s),
            envs[k].num_envs / (float(np.mean(rates[k])) if others else max(rates[k])),
        )
        for k, r in enumerate(racers)
    ]
    return sorted(raced, key=lambda candidate: candidate.measured_s or 0.0)


def _probe(connection: Any, fn: Any) -> None:
    import pickle

    from hotloop.envs.worker import portable

    try:
        make = pickle.loads(fn) if isinstance(fn, bytes) else fn
        make().close()  # the first one imports what it needs
        start = time.perf_counter()
        env = make()
        made_s = time.perf_counter() - start
        is_vector = isinstance(env, AnyVectorEnv)
        steps = env.num_envs if is_vector else 1
        space = env.single_observation_space if is_vector else env.observation_space
        env.action_space.seed(0)
        env.reset(seed=0)
        times: list[float] = []
        works: list[float] = []
        end = time.perf_counter() + PROBE_S
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        while not times or (time.perf_counter() < end and len(times) < 20_000):
            action = env.action_space.sample()
            began, start = time.thread_time(), time.perf_counter()
            _, _, terminated, truncated, _ = env.step(action)
            times.append(time.perf_counter() - start)
            works.append(time.thread_time() - began)
            if not is_vector and (terminated or truncated):
                env.reset()
        passed = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_SELF)
        work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        # Who waits gives the core away; on a busy machine it is also taken away, which is no
        # waiting of the env's.
        waits = (after.ru_nvcsw - before.ru_nvcsw) / len(times)
        busy = 1.0 if waits < WAITS else min(1.0, work / passed)
        env.close()
        step_s, late_s = np.quantile(times, [0.5, 0.95])
        if waits < RARELY:
            # Steps that other programs interrupted are late, but that is not the env's doing.
            typical, most = np.quantile(works, [0.5, 0.95])
            late_s = min(late_s, step_s * most / typical) if typical > 0 else late_s
        connection.send(
            (
                True,
                Probe(
                    float(step_s),
                    float(late_s),
                    busy,
                    Layout.of(space).nbytes(1),
                    made_s,
                    steps,
                    is_vector,
                ),
            )
        )
    except BaseException as error:
        connection.send((False, portable(error)))
