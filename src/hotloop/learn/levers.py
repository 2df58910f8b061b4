"""What may be tried on a learner: its settings that change how fast it works, or how it learns."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from hotloop.learn.optimiser_step import missing_compiler
from hotloop.learn.settings import (
    BFLOAT16,
    COMPILE,
    FLOAT32,
    GRAPH,
    HEAD,
    PINNED,
    PLAIN,
    LearnerSettings,
)
from hotloop.loop.host import whole_cores
from hotloop.loop.lever import Lever, Option, Options

# By the order in which threads add up.
ROUNDING = 1e-3
_STEPPING = ("env step", "collect")
_LEARNING = ("update", "policy")
# Settings that change what is learned: what they are, and the factors of the present value that are
# tried.
_FACTORS: Mapping[str, tuple[str, Sequence[float]]] = {
    "learning_rate": ("Adam's step size", (4, 8, 2, 16, 0.5)),
    "num_envs": ("envs stepped side by side", (2, 4, 8, 0.5)),
    "fragment_steps": ("steps of every env in a fragment", (0.25, 0.5, 2)),
    "minibatches": ("parts into which a pass cuts its batch", (0.25, 0.5, 2)),
    "epochs": ("passes of an update over its batch", (0.5, 1.5, 2)),
    "batch_size": ("transitions of one optimiser step", (0.5, 2, 4)),
    "replay_ratio": ("transitions learned from for each env step", (0.5, 2)),
    "batch_fragments": ("fragments that an update learns from", (2, 4)),
    "max_lag": ("updates that a fragment's policy may be old", (0.5, 2)),
}


def levers_of(settings: LearnerSettings, synchronous: bool) -> Sequence[Lever]:
    """The levers of a learner with these settings.

    synchronous: whether it computes the same bits on every backend.
    """
    return [
        *_workers(settings, synchronous),
        *_threads(settings),
        *_double_buffer(settings),
        *_copy(settings),
        *_computing(settings),
        *_learning(settings),
    ]


def _workers(settings: LearnerSettings, synchronous: bool) -> list[Lever]:
    """Where the envs are stepped. Only where the policy acts at the head are the bits the same."""
    if settings.backend not in ("serial", "process"):
        return []
    at_head = settings.policy_at == HEAD
    # Several threads of torch add up in an order of their own, beside workers in another one.
    rounded: bool | float = True if settings.torch_threads == 1 else ROUNDING
    # An actor's fragments are of its own envs: other actors make other batches.
    kept = rounded if synchronous and at_head else False
    most = min(2 * whole_cores(), settings.num_envs)
    counts: list[Option] = [n for n in range(1, most + 1) if settings.num_envs % n == 0]

    def in_workers(options: Options) -> bool:
        return options.get("backend", settings.backend) == "process"

    # As those who start workers choose where no number is given.
    usual = min(whole_cores(), settings.num_envs) if at_head else settings.num_actors
    backend = Lever(
        "backend",
        ("serial", "process"),
        settings.backend,
        keeps_result=kept,
        about="where the envs are stepped",
        stages=_STEPPING,
        risk="cheap envs are slower in processes",
    )
    workers = Lever(
        "num_workers",
        counts,
        usual if settings.num_workers is None else settings.num_workers,
        applies=in_workers,
        keeps_result=kept,
        about="processes that step envs; the envs of each are so many fewer",
        stages=_STEPPING,
        risk="more of them than free cores wait for each other",
    )
    # With workers that act by themselves, a policy here would be another kind of training.
    return [backend, workers] if at_head else [workers]


def _threads(settings: LearnerSettings) -> list[Lever]:
    counts = {1, 2, whole_cores()} if whole_cores() > 1 else {1}
    alone = {*counts, settings.torch_threads} == {1}
    return [
        Lever(
            "torch_threads",
            sorted(counts),
            settings.torch_threads,
            keeps_result=ROUNDING,
            about="threads of torch",
            stages=_LEARNING,
            risk="small networks are slower on several",
            missing="more than one core" if alone else "",
        )
    ]


def _copy(settings: LearnerSettings) -> list[Lever]:
    return [
        Lever(
            "copy",
            (True, False),
            settings.copy,
            about="whether what the envs return is copied before it is stored",
            area="memory",
            stages=_STEPPING,
        )
    ]


def _double_buffer(settings: LearnerSettings) -> list[Lever]:
    now = getattr(settings, "double_buffer", None)
    if now is None or settings.policy_at != HEAD or settings.num_envs % 2:
        return []

    def in_workers(options: Options) -> bool:
        return options.get("backend", settings.backend) == "process"

    return [
        Lever(
            "double_buffer",
            (False, True),
            now,
            applies=in_workers,
            keeps_result=ROUNDING,
            about="one half of the envs is stepped while the policy acts for the other",
            area="communication",
            stages=_STEPPING,
        )
    ]


def _computing(settings: LearnerSettings) -> list[Lever]:
    """How an optimiser step is computed. A graph of CUDA, and pinned memory, need a card."""
    has_card = settings.device.startswith("cuda")
    precision = Lever(
        "precision",
        (FLOAT32, BFLOAT16),
        settings.precision,
        keeps_result=False,
        about="the number format of an update",
        area="memory",
        stages=("update",),
        risk="it may learn worse",
    )
    lacking = missing_compiler(torch.device(settings.device))
    compiled = Lever(
        "compiled",
        [PLAIN, *([] if lacking else [COMPILE]), *([GRAPH] if has_card else [])],
        settings.compiled,
        keeps_result=ROUNDING,
        about="an optimiser step as one program",
        stages=("update",),
        risk="compiles for a minute at the start",
        missing="" if has_card else lacking,
    )
    transfer = Lever(
        "transfer",
        [PLAIN, *([PINNED] if has_card else [])],
        settings.transfer,
        about="batches are copied to the card while it computes",
        area="communication",
        stages=("update",),
        missing="" if has_card else "a card to learn on (device=cuda)",
    )
    return [precision, compiled, transfer]


def _learning(settings: LearnerSettings) -> list[Lever]:
    """What changes learning, and is judged by how soon the target is reached."""
    found = []
    names = {field.name for field in fields(settings)}
    for name, (about, factors) in _FACTORS.items():
        now: Any = getattr(settings, name) if name in names else None
        if not now:
            continue
        options = [now * factor for factor in factors]
        if isinstance(now, int):
            options = [max(1, round(each)) for each in options]
        found.append(
            Lever(
                name,
                list(dict.fromkeys(options)),
                now,
                keeps_result=False,
                about=about,
                stages=(),
                risk="it may learn worse, or not at all",
            )
        )
    return found
