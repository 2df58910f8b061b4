"""The Ray cluster: joined or started, and what it has room for."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray

from hotloop.errors import SettingError, WorkerError

RAY: Any = ray  # its questions about the cluster carry no types
# Options that recovery and the order of steps rest on, or that have a setting of their own.
_OURS = (
    "num_cpus",
    *("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups"),
    *("name", "get_if_exists", "lifetime"),
)

# Ray runs its workers at nice 15: where anything else computes on their cores, as a learner does,
# an env gets a thirtieth of its share. In a Ray that is started here they have all of it.
FULL_SHARE = {"RAY_worker_niceness": "0"}


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables until the block ends; those that are set already stay."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def start_ray(address: str | None, quiet: bool = False) -> None:
    """Connect to a cluster, or start one here; it runs on until the interpreter exits.

    Other parts of this process may use it by then. quiet: Ray prints only errors, and its workers
    nothing at all.
    """
    logging: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False} if quiet else {}
    if (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://"):
        ray.init(address, **logging)  # through a client, which has no say in the dashboard
        return
    with environment(FULL_SHARE), warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore")  # of coming changes in Ray
        ray.init(address, include_dashboard=False, **logging)


def actor_options(num_cpus: float, ray_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an actor is started with.

    Raises: SettingError for an option that is not the caller's to choose.
    """
    given = dict(ray_options or {})
    if taken := [name for name in _OURS if name in given]:
        raise SettingError(
            f"ray_options: expected options that place an actor (resources, num_gpus, memory, "
            f"scheduling_strategy, label_selector, runtime_env), got {', '.join(taken)}; "
            "num_cpus is a setting of its own, and restarts go by `restarts`"
        )
    return {
        "scheduling_strategy": "SPREAD",
        **given,
        "num_cpus": num_cpus,
        "max_restarts": 0,
        "max_task_retries": 0,
    }


def expect_placement(num_cpus: float, start_timeout_s: float) -> None:
    """Refuse settings of the placement of actors that are out of range.

    Raises: SettingError.
    """
    if not 0 <= num_cpus < float("inf") or not start_timeout_s > 0:
        raise SettingError(
            "expected num_cpus >= 0 for each worker, start_timeout_s > 0, got "
            f"{num_cpus}, {start_timeout_s}"
        )


def expect_living_nodes() -> None:
    """Refuse to wait for a place in a cluster that has no living node."""
    nodes = RAY.nodes()
    if not any(node["Alive"] for node in nodes):
        raise WorkerError(
            f"ray: none of the cluster's {len(nodes)} nodes is alive, so there is no place for a "
            "worker; start the cluster anew, and then this program"
        )


def capacity(options: Mapping[str, Any]) -> float:
    """How many actors with these options fit on the nodes that are alive, were they empty."""
    asked = _demand(options)
    room = 0.0
    for node in RAY.nodes():
        if node["Alive"]:
            has = node["Resources"]
            # Ray counts in ten-thousandths; 1 / 0.1 is not to come out below 10.
            fits = [has.get(name, 0.0) / amount + 1e-6 for name, amount in asked.items()]
            room += float(np.floor(min(fits))) if fits else float("inf")
    return room


def _demand(options: Mapping[str, Any]) -> dict[str, float]:
    """What one actor asks of a node, by Ray's names."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    asked = {name: float(options.get(option) or 0.0) for option, name in names.items()}
    asked |= {name: float(amount) for name, amount in (options.get("resources") or {}).items()}
    return {name: amount for name, amount in asked.items() if amount > 0}


def demand_in_words(options: Mapping[str, Any]) -> str:
    """What an actor with these options asks of a node, in words."""
    strategy = options["scheduling_strategy"]
    placed = "" if strategy == "SPREAD" else f", placed by {strategy}"
    return (amounts(_demand(options)) or "nothing") + placed


def amounts(resources: Mapping[str, float]) -> str:
    """Resources in words; a node's own names and stores, which no actor asks for, are left out."""
    return ", ".join(
        f"{amount:g} {name}"
        for name, amount in sorted(resources.items())
        if ":" not in name and name != "object_store_memory"
    )
