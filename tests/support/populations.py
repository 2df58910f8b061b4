"""Populations with and without a column of where each agent starts."""

from dataclasses import replace

import numpy as np

from hotloop.populations import PopulationData


def with_start(data: PopulationData, stage: np.ndarray) -> PopulationData:
    """The same agents, which start in these compartments."""
    return replace(data, columns={**data.columns, "stage": stage})


def without_start(data: PopulationData) -> PopulationData:
    """The same agents, for a model that draws who starts in which compartment."""
    columns = {name: column for name, column in data.columns.items() if name != "stage"}
    return replace(data, columns=columns)
