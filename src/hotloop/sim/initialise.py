"""Make the first state of a model from its data: check everything, then move it, once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotloop.errors import ConfigError, HotloopError, PathError, nearest
from hotloop.sim.memory import estimate, refuse_if_too_large
from hotloop.sim.model import Column, FromColumn, FromEdges, Model, Series
from hotloop.sim.network import AnyNetwork, Network, PeriodicNetwork, RandomContacts
from hotloop.sim.population import Population, checked_values
from hotloop.sim.record import Record
from hotloop.sim.settings import Settings
from hotloop.sim.state import State
from hotloop.sim.traffic import Traffic


def first_state(
    model: Model,
    data: Any,
    settings: Settings,
    *,
    record: Record,
    num_steps: int,
    traffic: Traffic,
) -> State:
    """Make the state before step 0.

    data: the loaded population (`columns`, `edges`, `size`), or None for a model that needs none.

    Raises: ConfigError for values that do not fit the model, CapacityError for too many.
    """
    sizes = _sizes(model, data)
    refuse_if_too_large(estimate(model, data, settings, sizes, record, num_steps), settings)
    state = State(settings, sizes=sizes, num_steps=num_steps, traffic=traffic)
    written = {path for substep in model.substeps for path in substep.writes}
    for name, initialiser in model.environment.items():
        path = f"environment/{name}"
        if isinstance(initialiser, Series):
            zero = torch.zeros((), dtype=initialiser.dtype, device=settings.device)
            state.add(path, zero, (num_steps,), series=True)
        else:
            _add(state, path, initialiser, data)
    for name, columns in model.populations.items():
        _add_population(state, name, columns, data, written)
    for thing, properties in model.objects.items():
        for name, initialiser in properties.items():
            path = f"objects/{thing}/{name}"
            _add(state, path, initialiser, data)
    for name, initialiser in model.networks.items():
        state.networks[name] = _network(name, initialiser, model, data, state)
    return state


def restart(model: Model, data: Any, state: State) -> None:
    """Compute first values again where functions make them, after the seeds were changed.

    Networks stay: contacts are part of the model and do not depend on a seed.
    """
    state.reset()
    groups = {"environment": model.environment}
    groups |= {f"agents/{name}": columns for name, columns in model.populations.items()}
    groups |= {f"objects/{name}": values for name, values in model.objects.items()}
    for place, initialisers in groups.items():
        for name, initialiser in initialisers.items():
            given = initialiser.values if isinstance(initialiser, Column) else initialiser
            if callable(given):
                path = f"{place}/{name}"
                state.restart(path, _resolved(path, initialiser, data, state))


def _sizes(model: Model, data: Any) -> dict[str, int]:
    sizes = dict(model.sizes)
    loaded = model.loaded_population
    missing = [name for name in model.populations if name not in sizes]
    if data is not None and loaded is not None:
        sizes[loaded] = data.size
        missing.remove(loaded)
    if missing:
        raise ConfigError(
            f"model {model.name!r}: population {missing[0]!r} has no size; load it (data_loader=), "
            f"or give the model sizes={{{missing[0]!r}: …}}"
        )
    return sizes


def _add_population(
    state: State, name: str, columns: Mapping[str, Any], data: Any, written: set[str]
) -> None:
    # One after the other, so that a function sees the columns before its own.
    for column, initialiser in columns.items():
        path = f"agents/{name}/{column}"
        values = _resolved(path, initialiser, data, state)
        checked = Population(name, state.size(name), {column: values})
        own = checked.own_shape(column, state.replicates)
        state.add(path, values, own, written=path in written)


def _add(state: State, path: str, initialiser: Any, data: Any) -> None:
    values = _resolved(path, initialiser, data, state)
    given = initialiser.values if isinstance(initialiser, Column) else initialiser
    # Only functions return values by replicate; an array is one replicate's value at any length.
    leads = callable(given) and values.shape[:1] == (state.replicates,)
    state.add(path, values, tuple(values.shape[1:] if leads else values.shape))


def _resolved(path: str, initialiser: Any, data: Any, state: State) -> Tensor:
    """Compute the values of an initialiser, check them, and move them to the state's device."""
    spec = initialiser if isinstance(initialiser, Column) else Column(initialiser)
    values = spec.values
    if isinstance(values, FromColumn):
        columns = {} if data is None else data.columns
        if values.name not in columns:
            hint = nearest(values.name, columns) if columns else "; no population is loaded"
            raise ConfigError(f"{path}: the population has no column {values.name!r}{hint}")
        column = columns[values.name]
        if values.convert is not None:
            column = values.convert(column, f"population {data.name!r}: column {values.name!r}")
        values = column
    elif callable(values):
        values = _called(path, values, data, state)
    tensor = checked_values(path, values, dtype=spec.dtype, low=spec.low, high=spec.high)
    return state.traffic.moved(tensor, state.device)


def _network(name: str, initialiser: Any, model: Model, data: Any, state: State) -> AnyNetwork:
    path = f"networks/{name}"
    made: Any = initialiser
    if isinstance(made, FromEdges):
        if data is None or data.edges is None:
            what = (
                "no population is loaded"
                if data is None
                else f"{data.name!r} has no edges; LoadPopulation(…, draw_network=True), or "
                "--draw-network on the command line, draws some"
            )
            raise ConfigError(f"{path}: expected the edges of the loaded population, but {what}")
        made = _loaded_network(data)
    elif callable(made):
        made = _called(path, made, data, state)
    if isinstance(made, np.ndarray | Tensor):
        size = state.size(model.loaded_population or next(iter(model.populations)))
        try:
            made = Network.from_edges(size, np.asarray(made))
        except HotloopError as error:
            error.add_note(f"in {path}")
            raise
    if not isinstance(made, Network | PeriodicNetwork | RandomContacts):
        raise ConfigError(
            f"{path}: expected a network or edges (E, 2), got {type(made).__qualname__}"
        )
    if made.num_agents not in state.sizes.values():
        raise ConfigError(
            f"{path}: a network of {made.num_agents} agents, and the populations have "
            f"{', '.join(f'{n} ({size})' for n, size in state.sizes.items())}"
        )
    if state.device.type == "cuda" and isinstance(made, Network):
        state.traffic.transfers += 2
        state.traffic.transfer_bytes += 8 * made.num_edges
        made.on(state.device)
    network: AnyNetwork = made
    return network


def _loaded_network(data: Any) -> AnyNetwork:
    networks = [Network.from_edges(data.size, e) for e in (data.edges, *data.periods)]
    return networks[0] if len(networks) == 1 else PeriodicNetwork(networks)


def _called(path: str, function: Any, data: Any, state: State) -> Any:
    try:
        return function(data, state)
    except PathError as error:
        raise ConfigError(f"{path}: its initialiser reads what is not there yet: {error}") from None
