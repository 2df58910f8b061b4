"""Courses of calls as training scripts make them, planted for the search for iterations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from hotloop.recognise.calls import Call

# What a call takes where a test does not say otherwise, µs.
DURATIONS_US = {
    "data": 200,
    "act": 100,
    "env step": 150,
    "env reset": 300,
    "forward": 400,
    "backward": 700,
    "clip": 60,
    "optimiser step": 150,
    "log": 40,
    "checkpoint": 5_000,
    "communication": 300,
    "wait": 900,
}
UPDATE = ("forward", "backward", "optimiser step")
SUPERVISED = ("data", *UPDATE)
STEP = ("act", "env step")
OPT = "optimiser step"
CLIPPED = ("forward", "backward", "clip", OPT)
ONCE = dict.fromkeys(UPDATE, 1.0)


def timed(
    names: Iterable[str],
    *,
    seed: int = 0,
    noise: float = 0.3,
    durations_us: Mapping[str, float] | None = None,
    gap_us: float = 5,
) -> list[Call]:
    """Calls with these names, one after the other. noise: σ of the logarithm of a duration."""
    rng = np.random.default_rng(seed)
    usual = {**DURATIONS_US, **(durations_us or {})}
    calls, now_ns = [], 10**12
    for name in names:
        now_ns += int(gap_us * 1e3 * rng.lognormal(0, noise))
        end_ns = now_ns + int(usual.get(name, 100) * 1e3 * rng.lognormal(0, noise))
        calls.append(Call(str(name), now_ns, end_ns))
        now_ns = end_ns
    return calls


def ppo(
    iterations: int,
    *,
    steps: int = 128,
    minibatches: Sequence[int] | int = 16,
    acts: int = 1,
    bootstrap: bool = False,
    episode: int | None = None,
    update: Sequence[str] = CLIPPED,
    seed: int = 0,
) -> Iterator[str]:
    """Rollouts and updates. minibatches: how many, or from how many to how many at random."""
    rng = np.random.default_rng(seed)
    for _ in range(iterations):
        for _ in range(steps):
            yield from ["act"] * acts
            yield "env step"
            if episode and rng.random() < 1 / episode:
                yield "env reset"
        if bootstrap:
            yield "act"
        number = minibatches if isinstance(minibatches, int) else rng.integers(*minibatches) + 1
        for _ in range(int(number)):
            yield from update


def dqn(
    steps: int,
    *,
    every: int = 4,
    warm_up: int = 0,
    random: float = 0.0,
    gradient_steps: int = 1,
    target_every: int | None = None,
    evaluate_every: int | None = None,
    episode: int | None = 200,
    seed: int = 0,
) -> Iterator[str]:
    """Steps with an update every so many. random: the share of steps without a call of act."""
    rng = np.random.default_rng(seed)
    for k in range(1, steps + 1):
        if k > warm_up and rng.random() >= random:
            yield "act"
        yield "env step"
        if episode and rng.random() < 1 / episode:
            yield "env reset"
        if k > warm_up and k % every == 0:
            for _ in range(gradient_steps):
                yield from ("act", *UPDATE)
        if target_every and k % target_every == 0:
            yield "target update"
        if evaluate_every and k % evaluate_every == 0:
            yield "env reset"
            for _ in range(10 * 200):
                yield from STEP


def sac(steps: int, *, updates: int = 3, warm_up: int = 0) -> Iterator[str]:
    """A step, then the updates of critic, actor and temperature."""
    for k in range(steps):
        yield from STEP if k >= warm_up else ["env step"]
        if k >= warm_up:
            yield from UPDATE * updates


def supervised(
    iterations: int,
    one: Sequence[str] = SUPERVISED,
    *,
    log_every: int | None = None,
    epoch: int | None = None,
    evaluation: int = 0,
    checkpoint: bool = False,
) -> Iterator[str]:
    """Iterations of one loop; after each epoch an evaluation over so many batches, a checkpoint."""
    for k in range(1, iterations + 1):
        yield from one
        if log_every and k % log_every == 0:
            yield "log"
        if epoch and k % epoch == 0:
            yield from ("data", "act") * evaluation
            if checkpoint:
                yield "checkpoint"


# Loops that repeat exactly: the calls, the boundary, the calls of one iteration.
_EXACT: dict[str, tuple[Iterable[str], str, str, dict[str, float]]] = {
    "supervised": (supervised(100), OPT, "data", dict.fromkeys(SUPERVISED, 1)),
    "accumulation": (
        supervised(50, (*("data", "forward", "backward") * 4, OPT)),
        OPT,
        "data",
        {"data": 4, "forward": 4, "backward": 4, OPT: 1},
    ),
    "clipping": (supervised(50, ("data", *CLIPPED)), OPT, "data", {"data": 1, "clip": 1, **ONCE}),
    "scaler": (
        supervised(50, ("data", *UPDATE, "scaler update")),
        OPT,
        "data",
        {"data": 1, "scaler update": 1, **ONCE},
    ),
    "several processes": (
        supervised(50, ("data", "forward", "backward", "communication", OPT)),
        OPT,
        "data",
        {"data": 1, "communication": 1, **ONCE},
    ),
    "two networks": (
        supervised(50, ("data", *UPDATE, *UPDATE)),
        OPT,
        "data",
        {"data": 1, **dict.fromkeys(UPDATE, 2)},
    ),
    "ppo": (
        ppo(8),
        OPT,
        "act",
        {"act": 128, "env step": 128, **dict.fromkeys(CLIPPED, 16)},
    ),
    "ppo with a bootstrap": (
        ppo(8, bootstrap=True),
        OPT,
        "act",
        {"act": 129, "env step": 128, **dict.fromkeys(CLIPPED, 16)},
    ),
    "ppo with two networks that act": (
        ppo(8, acts=2),
        OPT,
        "act",
        {"act": 256, "env step": 128, **dict.fromkeys(CLIPPED, 16)},
    ),
    "long ppo": (
        ppo(4, steps=2048, minibatches=640, update=UPDATE),
        OPT,
        "act",
        {"act": 2048, "env step": 2048, **dict.fromkeys(UPDATE, 640)},
    ),
    "dqn": (dqn(800, episode=None), OPT, "act", {"act": 5, "env step": 4, **ONCE}),
    "sac": (sac(200), OPT, "act", {"act": 1, "env step": 1, **dict.fromkeys(UPDATE, 3)}),
    "simulations": (
        ("env reset", *["env step"] * 100) * 8,
        "env step",
        "env reset",
        {"env reset": 1, "env step": 100},
    ),
    "gradients through a simulation": (
        (*["forward"] * 50, "backward", OPT) * 8,
        OPT,
        "forward",
        {"forward": 50, "backward": 1, OPT: 1},
    ),
    "generation and reward": (
        ("data", *["act"] * 65, *UPDATE * 4) * 8,
        OPT,
        "data",
        {"data": 1, "act": 65, **dict.fromkeys(UPDATE, 4)},
    ),
    "generation from prompts in memory": (
        (*["act"] * 65, *UPDATE) * 8,
        OPT,
        "act",
        {"act": 65, **ONCE},
    ),
    "asynchronous": (("wait", *UPDATE) * 50, OPT, "wait", {"wait": 1, **ONCE}),
    "prediction over a loader": (("data", "act") * 50, "act", "data", {"data": 1, "act": 1}),
}
EXACT = {kind: (list(row[0]), *row[1:]) for kind, row in _EXACT.items()}
