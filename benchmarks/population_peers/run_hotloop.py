"""hotloop's covid model, through the Executor, on the population of the turn.

Modes: `forward` lets the program choose between its ways; `dense` looks at every agent and edge
every day; `substeps` runs the same model substep by substep on tensors; `backward` is `forward`
with a gradient of the infections of all days to R, taken and timed apart.
"""

from time import perf_counter

import torch
from seirm import RATE
from turn import Turn

from hotloop.models.epidemic import covid
from hotloop.populations import PopulationData
from hotloop.sim import DataLoader, Executor, LoadPopulation

R_PATH = "initializer.transition_function.0.new_transmission.learnable_args.R2"
SETTINGS = {
    "forward": {},
    "dense": {"active_set": False},
    "substeps": {"fused": False},
    "backward": {},
}

turn = Turn("hotloop", ["hotloop", "torch", "numba", "numpy"])
if turn.threads:
    torch.set_num_threads(turn.threads)
people = turn.population
loaded = LoadPopulation(
    PopulationData("peers", {"age": people.age, "stage": people.stages}, people.edges)
)


def start(seed):
    runner = Executor(
        model=covid,
        data_loader=DataLoader(covid, loaded),
        device="cpu",
        seed=seed,
        threads=turn.threads or None,
        **SETTINGS[turn.mode],
    ).runner
    runner.init()
    rate = torch.full((3, 1), RATE, requires_grad=turn.mode == "backward")
    runner.set_parameters({R_PATH: rate})

    def run(steps):
        began = perf_counter()
        runner.step(steps)
        seconds = perf_counter() - began
        caught = runner.state_trajectory[-1][-1]["environment"]["daily_infected"]
        if turn.mode == "backward":
            began = perf_counter()
            caught.sum().backward()
            turn.extra.setdefault("backward_seconds", []).append(perf_counter() - began)
        return [seconds / steps] * steps, caught.detach()[:steps].tolist()

    return run


turn.measure(start)
