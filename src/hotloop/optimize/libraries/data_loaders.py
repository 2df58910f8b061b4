"""Levers on torch's DataLoader: its worker processes, and what they prepare ahead."""

import sys
from collections.abc import Mapping, Sequence

from hotloop.loop.host import whole_cores
from hotloop.loop.lever import Lever, Option, Options
from hotloop.optimize.libraries.calls import Arguments, Call, Made, WatchedCalls

_STAGES = ("data",)
_PREFETCH = 2  # of a loader with workers, where nothing is said


def _levers(name: str, made: Made) -> Sequence[Lever]:
    cores = whole_cores()
    has_card = sys.modules["torch"].cuda.is_available()
    return [
        Lever(
            f"{name} num_workers",
            list(dict.fromkeys((cores, 2 * cores, 1, 0))),
            made["num_workers"],
            about="processes that load batches beside the training",
            risk="a copy of the dataset in each, where it is not shared; draws of its own",
            area="communication",
            stages=_STAGES,
        ),
        *_of_workers(name, made),
        Lever(
            f"{name} pin_memory",
            (False, True),
            made["pin_memory"],
            about="batches in memory that a card copies from while it computes",
            area="communication",
            stages=_STAGES,
            missing="" if has_card else "a card, to which pinned memory is copied",
        ),
    ]


def _of_workers(name: str, made: Made) -> Sequence[Lever]:
    """What acts only where there are workers."""

    def has_workers(options: Options) -> bool:
        return bool(options[f"{name} num_workers"])

    return [
        Lever(
            f"{name} prefetch_factor",
            (_PREFETCH, 8),
            made["prefetch_factor"] or _PREFETCH,
            applies=has_workers,
            about="batches that each worker prepares ahead",
            risk="memory for so many batches",
            area="communication",
            stages=_STAGES,
        ),
        Lever(
            f"{name} persistent_workers",
            (False, True),
            # Workers that are added begin as those that stay: to start them for each pass costs
            # more than a short pass.
            made["persistent_workers"] or not made["num_workers"],
            applies=has_workers,
            about="workers that stay from one pass to the next",
            area="communication",
            stages=_STAGES,
        ),
    ]


def _fitting(arguments: Arguments, options: Mapping[str, Option]) -> Arguments:
    """Arguments that a loader takes: without workers it prefetches nothing."""
    if options.get("num_workers", arguments["num_workers"]):
        return dict(options)
    return {**options, "prefetch_factor": None, "persistent_workers": False}


DATA_LOADER = Call(
    name="DataLoader",
    module="torch.utils.data.dataloader",
    attribute="DataLoader.__init__",
    library="torch",
    settings=("num_workers", "prefetch_factor", "persistent_workers", "pin_memory"),
    levers=_levers,
    change=_fitting,
)


class DataLoaders(WatchedCalls):
    """The loaders of a target."""

    def __init__(self) -> None:
        super().__init__([DATA_LOADER])
