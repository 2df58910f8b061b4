"""Covasim on our network: its model of a virus, one layer of contacts, one variant.

Nearest equal work: the same agents and edges, as many infected at the start, one step a day; every
edge looked at every day. Different, because its model is: contacts carry both ways, so that it
reads each edge twice; viral loads, symptoms, severe courses and tests stand in for the five
stages; ages are years (twenties for code 1 and so on); a step also counts some sixty results.
Waning immunity and rescaling, which our model lacks, are off. Its chance of infection is set to
what its own random network gives at its 20 contacts. It uses one core (`numba_parallel` is none).

Agents infected at the start are not infectious before some days. So a population that starts with
many infected runs `INCUBATION` days before the clock starts.
"""

import covasim as cv
import numpy as np
from turn import Turn, timed

CONTACTS, BETA = 20, 0.016
INCUBATION, MANY = 6, 0.05
YEARS = np.array([10, 25, 35, 45, 57, 72])

turn = Turn("Covasim", ["covasim", "numpy", "numba"])
people = turn.population
infected = int((people.stages > 0).sum())
early = INCUBATION if infected > MANY * people.size else 0
mean_degree = 2 * len(people.edges) / people.size


def start(seed):
    sim = cv.Sim(
        pop_size=people.size,
        pop_infected=infected,
        contacts={"a": 1},
        beta=BETA * CONTACTS / mean_degree,
        n_days=early + turn.steps,
        use_waning=False,
        rescale=False,
        rand_seed=seed + 1,
        verbose=0,
    )
    sim.initialize()
    sim.people.age[:] = YEARS[people.age]
    sim.people.set_prognoses()
    sim.people.contacts["a"] = cv.Layer(
        p1=people.edges[:, 0], p2=people.edges[:, 1], beta=np.ones(len(people.edges)), label="a"
    )
    for _ in range(early):
        sim.step()

    def step():
        sim.step()
        return sim.results["new_infections"][sim.t - 1]

    return lambda steps: timed(step, steps)


turn.measure(start)
