"""The covid model in plain torch: dense tensors, a sparse matrix by rows (CSR), no kernel of ours.

Equal work: the same model, network, start and number of steps, every agent and edge looked at
every day; float32, draws by torch.rand, one product of matrix and vector a day. It is what a
careful author writes in an afternoon. Different: no record but the two sums, no gradient, draws
that no agent can be found by.
"""

import numpy as np
import torch
from seirm import DAYS, EXPOSED_DAYS, INFECTED_DAYS, MORTALITY, NEVER, first_times, received, sent
from turn import Turn, timed

turn = Turn("torch", ["torch", "numpy"])
if turn.threads:
    torch.set_num_threads(turn.threads)
people = turn.population
order = np.argsort(people.edges[:, 1], kind="stable")
pointers = np.searchsorted(people.edges[order, 1], np.arange(people.size + 1))
matrix = torch.sparse_csr_tensor(
    torch.from_numpy(pointers.astype(np.int64)),
    torch.from_numpy(people.edges[order, 0].astype(np.int64)),
    torch.ones(len(order)),
    (people.size, people.size),
)
table = torch.from_numpy(sent()).float().view(-1)
factor = torch.from_numpy(received(people.age)).float()


class Model:
    def __init__(self, seed):
        torch.manual_seed(seed)
        infected, after = first_times(people.stages)
        self.stage = torch.from_numpy(people.stages.astype(np.int64))
        self.infected, self.after = torch.from_numpy(infected), torch.from_numpy(after)
        self.day = 0
        self.daily_infected, self.daily_deaths = torch.zeros(100), torch.zeros(100)

    @torch.inference_mode()
    def step(self):
        day, stage = self.day, self.stage
        since = (day - self.infected).clamp_(0, DAYS - 1)
        pressure = matrix @ table[stage * DAYS + since]
        chance = -torch.expm1(-factor * pressure)
        caught = (stage == 0) & (torch.rand(people.size) < chance)
        self.daily_infected[day] = caught.sum()
        stage.masked_fill_(caught, 1)
        self.infected.masked_fill_(caught, day)
        self.after.masked_fill_(caught, day + 1 + EXPOSED_DAYS)
        due = self.after <= day
        falls_ill, leaves = due & (stage == 1), due & (stage == 2)
        dies = leaves & (torch.rand(people.size) < MORTALITY)
        self.daily_deaths[day] = dies.sum()
        stage.masked_fill_(falls_ill, 2).masked_fill_(leaves, 3).masked_fill_(dies, 4)
        self.after.masked_fill_(leaves, NEVER).masked_fill_(falls_ill, day + INFECTED_DAYS)
        self.day += 1
        return float(self.daily_infected[day])


turn.measure(lambda seed: lambda steps: timed(Model(seed).step, steps))
