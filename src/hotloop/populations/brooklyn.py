"""A synthetic Brooklyn: 2,700,000 agents and 9,900,000 contacts, in the shape of Astoria's network.

Drawn from a seed; `hotloop.populations.synthetic.generate` says which of its figures are exact.
Give this module to `load` or to a model's `LoadPopulation`, or call `load` here.
"""

from hotloop.populations.data import PopulationData

NAME = "brooklyn"


def load(*, seed: int = 0) -> PopulationData:
    """Load the population drawn from this seed, from the cache where it is there."""
    from hotloop.populations.load import load as load_source

    return load_source(NAME, seed=seed)
