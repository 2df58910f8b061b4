"""The population engine: models of agents on tensors, in Python or YAML, on CPU or GPU.

Needs torch, which is imported with the first name that is used.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.sim.config import load_model
    from hotloop.sim.ensemble import run_ensemble
    from hotloop.sim.env import SimulationEnv, SimulationVectorEnv, Task
    from hotloop.sim.executor import DataLoader, Executor, LoadPopulation, create
    from hotloop.sim.grid import Message, UniformGrid
    from hotloop.sim.model import Column, FromColumn, FromEdges, Model, Series
    from hotloop.sim.network import Network, PeriodicNetwork, RandomContacts
    from hotloop.sim.population import Population
    from hotloop.sim.ray_placement import RayPlacement
    from hotloop.sim.record import Record
    from hotloop.sim.runner import Runner
    from hotloop.sim.spec import ModelSpec, Output
    from hotloop.sim.state import State, StateView
    from hotloop.sim.substep import Substep

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError("hotloop.sim needs torch: pip install 'hotloop[torch]'", name="torch")

_MODULES = {
    "Column": "model",
    "DataLoader": "executor",
    "Executor": "executor",
    "FromColumn": "model",
    "FromEdges": "model",
    "Message": "grid",
    "LoadPopulation": "executor",
    "Model": "model",
    "ModelSpec": "spec",
    "Network": "network",
    "Output": "spec",
    "PeriodicNetwork": "network",
    "Population": "population",
    "RandomContacts": "network",
    "Record": "record",
    "RayPlacement": "ray_placement",
    "Runner": "runner",
    "Series": "model",
    "SimulationEnv": "env",
    "SimulationVectorEnv": "env",
    "State": "state",
    "StateView": "state",
    "Substep": "substep",
    "Task": "env",
    "UniformGrid": "grid",
    "create": "executor",
    "load_model": "config",
    "run_ensemble": "ensemble",
}

__all__ = [
    "Column",
    "DataLoader",
    "Executor",
    "FromColumn",
    "FromEdges",
    "LoadPopulation",
    "Message",
    "Model",
    "ModelSpec",
    "Network",
    "Output",
    "PeriodicNetwork",
    "Population",
    "RandomContacts",
    "RayPlacement",
    "Record",
    "Runner",
    "Series",
    "SimulationEnv",
    "SimulationVectorEnv",
    "State",
    "StateView",
    "Substep",
    "Task",
    "UniformGrid",
    "create",
    "load_model",
    "run_ensemble",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hotloop.sim' has no attribute {name!r}")
    return getattr(importlib.import_module(f"hotloop.sim.{_MODULES[name]}"), name)
