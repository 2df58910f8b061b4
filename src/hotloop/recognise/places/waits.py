"""Waits of the script's own thread: for queues, connections, sockets, pools, results of Ray."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from hotloop.recognise.places import COMMUNICATION, WAIT
from hotloop.recognise.recognition import Recognition

_METHODS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "queue": (("Queue", "get"), ("Queue", "join")),
    "multiprocessing.queues": (("Queue", "get"), ("SimpleQueue", "get")),
    "multiprocessing.connection": (("_ConnectionBase", "recv"), ("_ConnectionBase", "poll")),
    "multiprocessing.pool": (
        ("ApplyResult", "get"),
        ("IMapIterator", "next"),
        ("IMapIterator", "__next__"),
    ),
    "concurrent.futures._base": (("Future", "result"),),
    "socket": tuple(
        ("socket", name)
        for name in ("accept", "connect", "recv", "recv_into", "recvfrom", "sendall")
    ),
}
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "multiprocessing.connection": ("wait",),
    "ray": ("get", "wait"),
}


def install(recognition: Recognition, library: ModuleType) -> None:
    """Make waiting a stage that is delayed only: what is waited for depends on others."""
    of_ray = library.__name__ == "ray"
    name = COMMUNICATION if of_ray else WAIT
    stage = recognition.stage(name, effect="effectful", kind="network" if of_ray else "io")
    make = recognition.function(stage, main_only=True)
    for owner, method in _METHODS.get(library.__name__, ()):
        holder: Any = getattr(library, owner)
        recognition.patches.function(holder, method, make)
    for function in _FUNCTIONS.get(library.__name__, ()):
        recognition.patches.function(library, function, make)
