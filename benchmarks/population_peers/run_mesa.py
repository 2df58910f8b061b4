"""The covid model in Mesa: one object an agent, who knows whom it can infect.

Equal work: the same model, network, start and number of steps. Only those who are infectious visit
their neighbours, as in Mesa's own example of a virus on a network; the neighbours are a list of
agents rather than cells of a grid, which is quicker. Every agent is called twice a day.
"""

from math import exp

import mesa
from seirm import EXPOSED_DAYS, INFECTED_DAYS, MORTALITY, NEVER, first_times, received, sent
from turn import Turn, timed

turn = Turn("Mesa", ["mesa", "numpy"])
people = turn.population
table, factor = sent().tolist(), received(people.age).tolist()
infected_times, next_times = (times.tolist() for times in first_times(people.stages))


class Citizen(mesa.Agent):
    def __init__(self, model, stage, factor, infected_time, next_stage_time):
        super().__init__(model)
        self.stage, self.factor = stage, factor
        self.infected_time, self.next_stage_time = infected_time, next_stage_time
        self.pressure, self.reaches = 0.0, []

    def spread(self):
        if 0 < self.stage < 3:
            amount = table[self.stage][self.model.day - self.infected_time]
            for other in self.reaches:
                other.pressure += amount

    def change(self):
        day = self.model.day
        if self.pressure > 0:
            if self.stage == 0:
                chance = 1 - exp(-self.factor * self.pressure)
                if self.random.random() < chance:
                    self.stage, self.infected_time = 1, day
                    self.next_stage_time = day + 1 + EXPOSED_DAYS
                    self.model.daily_infected[day] += 1
            self.pressure = 0.0
        if self.next_stage_time <= day:
            if self.stage == 1:
                self.stage, self.next_stage_time = 2, day + INFECTED_DAYS
            elif self.stage == 2:
                dies = self.random.random() < MORTALITY
                self.stage, self.next_stage_time = 4 if dies else 3, NEVER
                self.model.daily_deaths[day] += dies


class Town(mesa.Model):
    def __init__(self, seed):
        super().__init__(rng=seed)
        self.day = 0
        self.daily_infected, self.daily_deaths = [0] * 100, [0] * 100
        citizens = Citizen.create_agents(
            self, people.size, people.stages.tolist(), factor, infected_times, next_times
        ).to_list()
        for src, dst in people.edges.tolist():
            citizens[src].reaches.append(citizens[dst])

    def step(self):
        self.agents.do("spread")
        self.agents.do("change")
        self.day += 1


def start(seed):
    town = Town(seed)

    def step():
        town.step()
        return town.daily_infected[town.day - 1]

    return lambda steps: timed(step, steps)


turn.measure(start)
