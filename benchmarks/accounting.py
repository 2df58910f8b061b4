"""Is every transition accounted for, whatever is killed?

Ape-X trains on envs whose every step has a number, with an inference server and a replay in shards.
While it does, actors, shards and the server are killed at random. In the end every step that an env
has made was put into the replay, or dropped by the rule of `max_lag`, or lost with its process; and
every transition that was put in is still there, was replaced by a newer one, or was lost with its
shard. What was drawn is compared with what was put in. Memory is looked at all the while.

    python benchmarks/accounting.py --markdown docs/benchmarks/accounting.md
"""

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.learn.apex import Apex, ApexSettings
from hotloop.rollout.fragments import IN_FLIGHT
from league.process import append, read
from tables import table, write_page

PEERS = Path(__file__).parent / "peers"
RESULTS = Path("docs/benchmarks/accounting.jsonl")
VERSION = "1"
NUM_ENVS, NUM_WORKERS, FRAGMENT_STEPS, SHARDS = 128, 2, 50, 2
SETTINGS: Mapping[str, Any] = {
    "env_id": "counted:Counted-v0",
    "num_envs": NUM_ENVS,
    "num_workers": NUM_WORKERS,
    "fragment_steps": FRAGMENT_STEPS,
    "backend": "process",
    "policy_at": "server",
    "n_step": 1,
    "max_lag": 2,  # so that fragments are dropped as well
    "replay_size": 200_000,
    "replay_shards": SHARDS,
    "replay_ratio": 0.1,
    "learn_after": 1_000,
    "restarts": 100_000,
    "hidden_size": 16,
}
FIRST_KILL_S = 5.0
KILL_S = (0.5, 3.0)  # between two kills
SAMPLE_S = 1.0  # between two looks at the memory


@dataclass
class Books:
    """What became of every step, kept apart from the learner.

    Steps are keys, life x 2^24 + step, as an env saw them after it.
    """

    added: list[np.ndarray] = field(default_factory=list)  # keys, in the order of their numbers
    dropped: list[np.ndarray] = field(default_factory=list)
    wrong: int = 0  # drawn transitions that are not what was put in under their number
    drawn: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    memory: list[int] = field(default_factory=list)  # bytes of all processes


def keys_of(obs: np.ndarray) -> np.ndarray:
    """The keys of observations (..., 2)."""
    return obs[..., 0].astype(np.int64) * 2**24 + obs[..., 1].astype(np.int64)


class Counting(Apex):
    """Ape-X, with what passes through it written into the books."""

    books: Books

    def _insert(self, fragment: Any) -> None:
        before = self.replay.added  # type: ignore[attr-defined]
        super()._insert(fragment)
        t, b = np.nonzero(fragment.valid)
        self.books.added.append(keys_of(fragment.all_next_obs[t, b]))
        assert self.replay.added == before + len(t)  # type: ignore[attr-defined]

    def _draw(self) -> Any:
        drawn = super()._draw()
        if drawn is not None:
            self.books.drawn += len(drawn.number)
            put_in = self._keys(drawn.number)
            self.books.wrong += int((keys_of(drawn.transitions.next_obs) != put_in).sum())
        return drawn

    def _keys(self, number: np.ndarray) -> np.ndarray:
        """What was put in under numbers."""
        ends = self._ends
        while len(ends) <= len(self.books.added):
            ends.append(ends[-1] + len(self.books.added[len(ends) - 1]))
        part = np.searchsorted(ends, number, side="right") - 1
        at = number - np.array(ends)[part]
        return np.array([self.books.added[p][i] for p, i in zip(part, at, strict=True)])

    _ends: list[int]


def train(transitions: int, seed: int) -> dict[str, Any]:
    """Train until so many transitions were put in; returns the sums of the books."""
    rng, books = random.Random(seed), Books()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOTLOOP_COUNTED"] = folder
        warnings = _Warnings(books.said)
        logging.getLogger("hotloop").addHandler(warnings)
        Counting.books, Counting._ends = books, [0]
        begin = time.monotonic()
        learner = Counting(ApexSettings(**SETTINGS, seed=seed))
        try:
            _watch_drops(learner, books)
            _run(learner, transitions, rng, books)
            seconds = time.monotonic() - begin
            books.said.update({"lost": int(learner.replay.figures()["transitions_lost"])})
            held = len(learner.replay)
            living = {worker.process.pid for worker in _actors(learner).values()}
        finally:
            learner.close()
            logging.getLogger("hotloop").removeHandler(warnings)
        files = sorted(Path(folder).glob("*.made"), key=lambda path: int(path.stem))
        made, pids = np.array([np.fromfile(path, np.int64) for path in files]).T
    sums = balance(books, made, held, np.isin(pids, list(living)))
    return {
        "seed": seed,
        "seconds": seconds,
        "kills": dict(books.kills),
        "memory_mib": [min(books.memory) >> 20, max(books.memory) >> 20],
        "memory_second_half_mib": [
            min(books.memory[len(books.memory) // 2 :]) >> 20,
            max(books.memory[len(books.memory) // 2 :]) >> 20,
        ],
        **sums,
    }


def balance(books: Books, made: np.ndarray, held: int, lives_on: np.ndarray) -> dict[str, Any]:
    """Account for every step. made, lives_on: of every life. held: in the replay at the end.

    Raises: AssertionError where a step is missing, there twice, or was never made.
    """
    added = np.concatenate(books.added)
    dropped = np.concatenate([np.zeros(0, np.int64), *books.dropped])
    arrived = np.concatenate((added, dropped))
    assert len(np.unique(arrived)) == len(arrived), "a step has arrived twice"
    life, step = np.divmod(arrived, 2**24)
    count = np.bincount(life, minlength=len(made) + 1)[1:]
    last = np.zeros(len(made) + 1, np.int64)
    np.maximum.at(last, life, step)
    # A life's steps arrive without a gap, from the first on; what is missing is its end.
    assert (last[1:] == count).all(), "a step in the middle of a life is missing"
    missing = made - count
    assert (missing >= 0).all(), "a step has arrived that was never made"
    most = IN_FLIGHT * FRAGMENT_STEPS + 1
    assert missing.max() <= most, f"more than {most} steps of a life were under way"
    lost_with_shards = books.said["lost"]
    return {
        "made": int(made.sum()),
        "lives": len(made),
        "put_into_replay": len(added),
        "dropped_by_max_lag": len(dropped),
        "lost_with_actors": int(missing[~lives_on].sum()),
        "under_way_at_the_end": int(missing[lives_on].sum()),
        "held_at_the_end": held,
        "lost_with_shards": lost_with_shards,
        "replaced_by_newer": len(added) - held - lost_with_shards,
        "drawn": books.drawn,
        "drawn_wrong": books.wrong,
        "said": {name: n for name, n in books.said.items() if name != "lost"},
    }


def _run(learner: Counting, transitions: int, rng: random.Random, books: Books) -> None:
    process = psutil.Process()
    next_kill = time.monotonic() + FIRST_KILL_S
    next_look = time.monotonic()
    while sum(map(len, books.added[-1:])) == 0 or learner.replay.added < transitions:  # type: ignore[attr-defined]
        learner.iterate()
        now = time.monotonic()
        if now > next_look:
            next_look = now + SAMPLE_S
            books.memory.append(memory_of(process))
        if now > next_kill:
            next_kill = now + rng.uniform(*KILL_S)
            kill_one(learner, rng, books)


def kill_one(learner: Counting, rng: random.Random, books: Books) -> None:
    """Kill an actor, a shard, or the inference server."""
    pool: Any = learner.actors.collector._workers
    shards: Any = learner.replay
    victims = [("actor", worker.process) for worker in _actors(learner).values()]
    victims += [("shard", s.process) for s in shards._messages._pool._shards.values()]
    victims += [("server", s.process) for s in pool._server._home._programs.values()]
    kind, victim = rng.choice(victims)
    if victim.poll() is None:
        os.kill(victim.pid, signal.SIGKILL)
        books.kills[kind] += 1


def _actors(learner: Counting) -> Any:
    pool: Any = learner.actors.collector._workers
    return pool._pool._workers


def memory_of(process: psutil.Process) -> int:
    """Bytes of a process and its children that no other process shares, and a share of the rest."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def _watch_drops(learner: Counting, books: Books) -> None:
    """Note the steps of fragments that are dropped as too old."""
    actors = learner.actors
    lag_of = actors._lag

    def noted(fragment: Any) -> int:
        lag = lag_of(fragment)
        # Dropped ones are asked about once; the others a second time, for the figures.
        if lag > learner.settings.max_lag:
            t, b = np.nonzero(fragment.valid)
            books.dropped.append(keys_of(fragment.all_next_obs[t, b]))
        return lag

    actors._lag = noted  # type: ignore[method-assign]


class _Warnings(logging.Handler):
    """Counts the warnings of deaths, by what has died."""

    def __init__(self, said: Counter[str]) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for kind, words in (
            ("actor", "fragment worker"),
            ("server", "inference server: it died"),
            ("shard", "shard"),
        ):
            if words in text:
                self._said[kind] += 1
                return


def page(lines: list[dict[str, Any]]) -> list[str]:
    """What became of every step, a column a run."""
    names = {
        "made": "env steps made",
        "put_into_replay": "put into the replay",
        "dropped_by_max_lag": "dropped: older than max_lag",
        "lost_with_actors": "lost with actors that were killed",
        "under_way_at_the_end": "under way when training ended",
    }
    after = {
        "put_into_replay": "put into the replay",
        "held_at_the_end": "held at the end",
        "replaced_by_newer": "replaced by newer ones",
        "lost_with_shards": "lost with shards that were killed",
        "drawn": "drawn, and compared",
        "drawn_wrong": "of them not what was put in",
    }
    runs = [f"seed {line['seed']}" for line in lines]

    def rows(which: dict[str, str]) -> list[list[str]]:
        return [[said, *(f"{line[name]:,}" for line in lines)] for name, said in which.items()]

    faults = [
        [f"{kind}s killed", *(str(line["kills"].get(kind, 0)) for line in lines)]
        for kind in ("actor", "shard", "server")
    ]
    faults += [
        [f"deaths of {kind}s said", *(str(line["said"].get(kind, 0)) for line in lines)]
        for kind in ("actor", "shard", "server")
    ]
    faults.append(["seconds", *(f"{line['seconds']:.0f}" for line in lines)])
    for said, name in (
        ("memory of all processes, MiB", "memory_mib"),
        ("the same in the second half", "memory_second_half_mib"),
    ):
        faults.append([said, *("{} to {}".format(*line[name]) for line in lines)])
    return [
        f"Ape-X with {NUM_WORKERS} actors of {NUM_ENVS // NUM_WORKERS} envs, an inference server "
        f"and a replay of {SETTINGS['replay_size']:,} transitions in {SHARDS} shards. The steps of "
        "every "
        "life of an env arrive once each and without a gap; what is missing is the end of those "
        f"that were killed, at most {IN_FLIGHT} fragments and a step of each env.",
        "## Env steps",
        table(["", *runs], rows(names)),
        "## Transitions in the replay",
        table(["", *runs], rows(after)),
        "## Faults and memory",
        table(["", *runs], faults),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--transitions", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    sys.path.append(str(PEERS))
    line = train(options.transitions, options.seed)
    print(json.dumps(line, indent=1))
    append(options.results, VERSION, line)
    if options.markdown is not None:
        write_page(
            options.markdown,
            "Every transition accounted for",
            page(read(options.results)),
            "benchmarks/accounting.py",
        )


if __name__ == "__main__":
    main()
