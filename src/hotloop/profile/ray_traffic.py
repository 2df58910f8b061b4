"""What a loop puts into Ray's object store and gets from it, and Ray's own timeline.

Ray sends from compiled code: its functions are replaced instead, and Ray is asked how large an
object is, which it knows of those of this process without a message.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hotloop.loop.run import FOLDER
from hotloop.loop.values import count_bytes
from hotloop.profile.traffic_calls import Call

STORE, ARGUMENTS = "Ray's object store", "Ray's calls, their arguments"
TIMELINE = FOLDER / "profile.ray-timeline.json"
_MOST_DEEP = 4


def ray_in_use() -> Any:
    """The module of Ray if this process is part of a cluster, else None."""
    ray = sys.modules.get("ray")
    return ray if ray is not None and ray.is_initialized() else None


def calls_of_ray() -> list[Call]:
    """Where the loop gets, puts, waits and calls; none without Ray."""
    ray = ray_in_use()
    if ray is None:
        return []
    found = [
        Call(ray, "get", _store, _none, lambda args, result: _got(ray, args[0], result)),
        Call(ray, "put", _store, lambda args, ref: _put(ray, args[0], ref), _none),
        Call(ray, "wait", _store, _none, _none),
    ]
    # Of what is passed by value; what is passed by reference is in the store already.
    for module, name in (("ray.remote_function", "RemoteFunction"), ("ray.actor", "ActorMethod")):
        owner = getattr(sys.modules.get(module), name, None)
        if hasattr(owner, "_remote"):
            found.append(Call(owner, "_remote", _arguments, _given, _none))
    return found


def write_timeline() -> Path | None:
    """Write what Ray's own profiler knows of its tasks, for Perfetto; None without Ray."""
    ray = ray_in_use()
    if ray is None:
        return None
    TIMELINE.parent.mkdir(parents=True, exist_ok=True)
    ray.timeline(filename=str(TIMELINE))
    return TIMELINE


def _store(_args: Sequence[Any]) -> str:
    return STORE


def _arguments(_args: Sequence[Any]) -> str:
    return ARGUMENTS


def _none(_args: Sequence[Any], _result: Any) -> int:
    return 0


def _given(args: Sequence[Any], _result: Any) -> int:
    return payload_bytes(args[1:])


def _got(ray: Any, refs: Any, result: Any) -> int:
    """What was got: as Ray has stored it, or its arrays and bytes where another process knows."""
    sizes = _stored(ray, refs if isinstance(refs, list | tuple) else [refs])
    return sizes if sizes is not None else payload_bytes(result)


def _put(ray: Any, value: Any, ref: Any) -> int:
    sizes = _stored(ray, [ref])
    return sizes if sizes is not None else payload_bytes(value)


def _stored(ray: Any, refs: Sequence[Any]) -> int | None:
    """The sizes of objects together; None where one of them is not known here."""
    try:
        known = ray.experimental.get_local_object_locations(list(refs))
    except (AttributeError, TypeError, ValueError):
        return None
    sizes = [known.get(ref, {}).get("object_size") for ref in refs]
    return None if None in sizes else sum(sizes)


def payload_bytes(value: Any, depth: int = _MOST_DEEP) -> int:
    """The bytes of the arrays, tensors and byte strings in a value: most of what is sent."""
    if isinstance(value, bytes | bytearray | memoryview):
        return memoryview(value).nbytes
    if depth and isinstance(value, dict):
        return sum(payload_bytes(each, depth - 1) for each in value.values())
    if depth and isinstance(value, list | tuple):
        return sum(payload_bytes(each, depth - 1) for each in value)
    return count_bytes(value)
