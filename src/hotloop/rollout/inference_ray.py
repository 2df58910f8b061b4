"""An inference server in a Ray actor, on any node: where a card is, if it asks for one.

Requests do not go through Ray, whose calls take about a millisecond, but through sockets.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Listener
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hotloop.envs.placement import limit_threads
from hotloop.envs.ray.cluster import amounts, start_ray
from hotloop.errors import WorkerError
from hotloop.rollout.inference import InferenceSettings, serve
from hotloop.rollout.served_policy import BACKLOG
from hotloop.rollout.worker_pool import Resources

FIND_S = 5.0  # an actor that has not said its address by then is asked again
PLACE_S = 30.0  # a cluster that has no place for so long is full
NAME_S = 30.0  # for so long, the name of an actor that has died may be taken


class _Server:
    """The actor. `address` and `answer` run beside `serve`."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._address: Any = None
        self._answer: bytes | None = None

    def serve(self, key: bytes, arguments: bytes) -> None:
        """Answer until the driver leaves."""
        limit_threads(self._threads)
        place = ray.util.get_node_ip_address(), 0  # type: ignore[no-untyped-call]
        with Listener(place, backlog=BACKLOG, authkey=key) as listener:
            self._address = listener.address
            serve(listener, arguments, self._ready)

    def _ready(self, answer: bytes) -> None:
        self._answer = answer

    def address(self) -> Any:
        """Host and port; None before it listens."""
        return self._address

    def answer(self) -> bytes | None:
        """What is said of its start."""
        return self._answer


class RayHome:
    """A server in an actor, which its workers find by its name."""

    def __init__(self, settings: InferenceSettings, resources: Resources) -> None:
        if not ray.is_initialized():
            start_ray(None)
        self._threads = settings.threads
        self._name = f"hotloop-inference-{secrets.token_hex(8)}"
        self.find: Callable[[], Any] = partial(_address_of, self._name)
        options: dict[str, Any] = {
            "num_cpus": resources.num_cpus,
            "num_gpus": resources.num_gpus,
            "max_restarts": 0,
            "concurrency_groups": {"control": 1},
        }
        asked = {"CPU": resources.num_cpus, "GPU": resources.num_gpus}
        bundle = {name: amount for name, amount in asked.items() if amount}
        # A place of its own: else a worker that waits for one would take that of a dead server.
        self._actor: Any = None
        self._place: Any = placement_group([bundle]) if bundle else None
        if self._place is not None:
            if not self._place.wait(PLACE_S):
                self.close()
                raise WorkerError(
                    f"inference server: expected a place on the cluster within {PLACE_S:g} s, for "
                    f"{amounts(asked)}, got none; let workers ask for less (num_cpus), or wait "
                    "until others have ended"
                )
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._place)
        self._make = ray.remote(**options)(_Server)
        self._serving: Any = None
        self._asked: Any = None

    def start(self, key: bytes, arguments: bytes) -> None:
        """Start an actor."""
        self._end()
        give_up_s = time.monotonic() + NAME_S
        while self._actor is None:
            try:
                self._actor = self._make.options(name=self._name).remote(self._threads)
            except ValueError:  # the one before has not quite gone
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(0.1)
        self._serving = self._actor.serve.remote(key, arguments)
        self._asked = None

    def answer(self) -> bytes | None:
        """What it said of its start, once."""
        if self._asked is None:
            self._asked = self._actor.answer.options(concurrency_group="control").remote()
        if not ray.wait([self._asked], timeout=0)[0]:
            return None
        try:
            answer: bytes | None = ray.get(self._asked)
        except RayError:
            return None
        finally:
            self._asked = None
        return answer

    def ended(self) -> str:
        """How it has ended; empty while it lives."""
        if not ray.wait([self._serving], timeout=0)[0]:
            return ""
        try:
            ray.get(self._serving)
        except RayActorError as error:
            return " ".join(str(error).split())[:200]
        return "it has left"

    def close(self) -> None:
        """End the actor, and give its place back. Idempotent."""
        self._end()
        if self._place is not None and ray.is_initialized():
            remove_placement_group(self._place)
        self._place = None

    def _end(self) -> None:
        if self._actor is not None and ray.is_initialized():
            ray.kill(self._actor)
        self._actor = None


def _address_of(name: str) -> Any:
    """The address of the server of a name. Raises: OSError while there is none."""
    try:
        actor = ray.get_actor(name)
        asked: Any = actor.address.options(concurrency_group="control").remote()
        address = ray.get(asked, timeout=FIND_S)
    except (ValueError, RayError) as error:
        raise OSError(f"no inference server {name}: {error}") from error
    if address is None:
        raise OSError(f"inference server {name} has not started yet")
    return address
