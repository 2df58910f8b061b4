"""Levers on vector envs: what steps them, in how many workers, and whether results are copied.

Of hotloop's own `make_vec`, and of Gymnasium's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hotloop.loop.host import whole_cores
from hotloop.loop.lever import Lever, Option, Options
from hotloop.optimize.libraries.calls import Arguments, Call, Made, WatchedCalls

_STAGES = ("env step",)


def _copy(name: str, made: Made) -> Lever:
    return Lever(
        f"{name} copy",
        (True, False),
        made["copy"],
        about="observations are the caller's; else the next step writes over them",
        area="memory",
        stages=_STAGES,
        risk="what keeps an observation without a copy of its own sees the next one there",
    )


# --- hotloop's ---------------------------------------------------------------------------------


def _own_levers(name: str, made: Made) -> Sequence[Lever]:
    cores = whole_cores()
    most = min(2 * cores, made["num_envs"])
    counts: list[Option] = sorted({1, min(cores, most), most})

    def in_workers(options: Options) -> bool:
        return options[f"{name} backend"] == "process"

    return [
        Lever(
            f"{name} backend",
            ("serial", "process"),
            made["backend"],
            about="where the envs are stepped",
            stages=_STAGES,
            risk="cheap envs are slower in processes",
        ),
        Lever(
            f"{name} num_workers",
            counts,
            made["num_workers"],
            applies=in_workers,
            about="processes that step envs; the envs of each are so many fewer",
            stages=_STAGES,
            risk="more of them than free cores wait for each other",
        ),
        _copy(name, made),
    ]


def _own_read(arguments: Arguments) -> Made:
    env, count = arguments["env"], arguments["num_envs"]
    listed = isinstance(env, Sequence) and not isinstance(env, str)
    return {**arguments, "num_envs": len(env) if listed else count or 1}


def _own_change(_arguments: Arguments, options: Mapping[str, Option]) -> Arguments:
    """Arguments that fit each other: only workers have a number."""
    if options.get("backend") == "serial":
        return {**options, "num_workers": None}
    return dict(options)


# --- Gymnasium's -------------------------------------------------------------------------------


def _gymnasium_levers(name: str, made: Made) -> Sequence[Lever]:
    return [
        Lever(
            f"{name} vectorization_mode",
            ("sync", "async"),
            made["vectorization_mode"],
            about="envs are stepped in this process, or each in one of its own",
            stages=_STAGES,
            risk="cheap envs are slower in processes",
        ),
        _copy(name, made),
    ]


def _gymnasium_read(arguments: Arguments) -> Made:
    mode: Any = arguments["vectorization_mode"]
    return {
        "vectorization_mode": mode if mode is None else str(getattr(mode, "value", mode)),
        "copy": (arguments["vector_kwargs"] or {}).get("copy", True),
    }


def _gymnasium_change(arguments: Arguments, options: Mapping[str, Option]) -> Arguments:
    found: Arguments = dict(options)
    if "copy" in found:
        found["vector_kwargs"] = {**(arguments["vector_kwargs"] or {}), "copy": found.pop("copy")}
    return found


CALLS = (
    Call(
        name="hotloop.make_vec",
        module="hotloop.envs",  # where `hotloop.make_vec` is looked up
        attribute="make_vec",
        library="hotloop",
        settings=("backend", "num_workers", "copy"),
        facts=("num_envs",),
        levers=_own_levers,
        read=_own_read,
        change=_own_change,
    ),
    Call(
        name="gymnasium.make_vec",
        module="gymnasium",
        attribute="make_vec",
        library="gymnasium",
        settings=("vectorization_mode", "copy"),
        levers=_gymnasium_levers,
        read=_gymnasium_read,
        change=_gymnasium_change,
    ),
)


class VectorEnvs(WatchedCalls):
    """The vector envs of a target."""

    def __init__(self) -> None:
        super().__init__(CALLS)
