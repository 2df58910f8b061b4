"""The covid model in mesa-frames: the agents are one data frame, a day is some expressions on it.

Equal work: the same model, network, start and number of steps. The pressure is a join of those who
are infectious with the edges, summed by receiver: polars' way of visiting neighbours.
"""

import numpy as np
import polars as pl
from mesa_frames import AgentSetPolars, ModelDF
from seirm import (
    DAYS,
    EXPOSED_DAYS,
    INFECTED_DAYS,
    MORTALITY,
    NEVER,
    first_times,
    received,
    sent,
)
from turn import Turn, timed

turn = Turn("mesa-frames", ["mesa_frames", "polars", "numpy"])
people = turn.population
table, factor = sent().ravel(), received(people.age)
infected_times, next_times = first_times(people.stages)
edges = pl.DataFrame({"src": people.edges[:, 0], "dst": people.edges[:, 1]}).cast(pl.Int64)
stage, after = pl.col("stage"), pl.col("next_stage_time")


class Citizens(AgentSetPolars):
    def __init__(self, model):
        super().__init__(model)
        self += pl.DataFrame(
            {
                "unique_id": np.arange(people.size),
                "stage": people.stages.astype(np.int64),
                "factor": factor,
                "infected_time": infected_times,
                "next_stage_time": next_times,
            }
        )

    def step(self):
        day, draws = self.model.day, self.model.random
        self.catch(day, draws.random(people.size))
        self.change(day, draws.random(people.size))

    def catch(self, day, drawn):
        sick = self.agents.filter(stage.is_between(1, 2))
        place = sick["stage"] * DAYS + (day - sick["infected_time"])
        senders = sick.select(src="unique_id").with_columns(sent=table[place.to_numpy()])
        pressure = edges.join(senders, on="src").group_by("dst").agg(pl.col("sent").sum())
        felt = self.agents.join(pressure, left_on="unique_id", right_on="dst", how="left")
        chance = 1 - (-(pl.col("factor") * pl.col("sent").fill_null(0.0))).exp()
        caught = felt.select((stage == 0) & (pl.lit(pl.Series(drawn)) < chance)).to_series()
        self.agents = self.agents.with_columns(
            stage=pl.when(caught).then(1).otherwise(stage),
            infected_time=pl.when(caught).then(day).otherwise("infected_time"),
            next_stage_time=pl.when(caught).then(day + 1 + EXPOSED_DAYS).otherwise(after),
        )
        self.model.daily_infected.append(caught.sum())

    def change(self, day, drawn):
        falls_ill, leaves = (after <= day) & (stage == 1), (after <= day) & (stage == 2)
        dies = leaves & (pl.lit(pl.Series(drawn)) < MORTALITY)
        self.model.daily_deaths.append(self.agents.select(dies.sum()).item())
        self.agents = self.agents.with_columns(
            stage=pl.when(falls_ill)
            .then(2)
            .when(dies)
            .then(4)
            .when(leaves)
            .then(3)
            .otherwise(stage),
            next_stage_time=pl.when(falls_ill)
            .then(day + INFECTED_DAYS)
            .when(leaves)
            .then(NEVER)
            .otherwise(after),
        )


class Town(ModelDF):
    def __init__(self, seed):
        super().__init__(seed)
        self.day, self.daily_infected, self.daily_deaths = 0, [], []
        self.agents += Citizens(self)

    def step(self):
        self.agents.step()
        self.day += 1


def start(seed):
    town = Town(seed)

    def step():
        town.step()
        return town.daily_infected[-1]

    return lambda steps: timed(step, steps)


turn.measure(start)
