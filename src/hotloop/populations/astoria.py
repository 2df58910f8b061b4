"""A synthetic Astoria: 37,518 agents and 136,378 contacts, with the real district's figures.

Drawn from a seed; `hotloop.populations.synthetic.generate` says which of its figures are exact.
Give this module to `load` or to a model's `LoadPopulation`, or call `load` here.
"""

from hotloop.populations.data import PopulationData

NAME = "astoria"


def load(*, seed: int = 0) -> PopulationData:
    """Load the population drawn from this seed, from the cache where it is there."""
    from hotloop.populations.load import load as load_source

    return load_source(NAME, seed=seed)
