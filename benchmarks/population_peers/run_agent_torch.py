"""AgentTorch's own covid model, from its newest sources (`--source`), through its own Executor.

Nearest equal work: our population in its file layout, R 4.75 in every week, each day every agent
and edge looked at. Different, because its model is: its stages turn fractional and its epidemic
dies after some days (the isolation is multiplied into the decision), all share one number of
interactions, the dead are not taken out; it copies the whole state, network and all, in every
substep and keeps a copy of it. Its cost does not depend on how many are infected.

Modes: `forward` is what its example does, with a graph for gradients on the way; `no_grad` spares
it that; `backward` also differentiates the infections of all days to R, and reports that apart.

At run time, without touching its files: a class that it imports and that no longer exists gets a
stand-in (nothing uses it), and its model's settings are read from a temporary copy, because it
writes the population's place into them.
"""

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import torch
from seirm import RATE
from turn import Turn

turn = Turn("AgentTorch", ["torch", "torch_geometric", "numpy"])
if turn.threads:
    torch.set_num_threads(turn.threads)
sys.path.insert(0, turn.asked.source)

import agent_torch.core.llm.backend  # noqa: E402
from agent_torch.core.dataloader import DataLoader, LoadPopulation  # noqa: E402
from agent_torch.core.executor import Executor  # noqa: E402

agent_torch.core.llm.backend.LangchainLLM = object
from agent_torch.models import covid  # noqa: E402

R_PATH = "initializer.transition_function.0.new_transmission.learnable_args.R2"


def write_population(folder):
    """Our population in the layout that it reads."""
    people = turn.population
    (folder / "mobility_networks").mkdir(parents=True)
    pd.Series(people.age.astype(np.int64)).to_pickle(folder / "age.pickle")
    np.savetxt(folder / "disease_stages.csv", people.stages.astype(float))
    np.savetxt(folder / "mobility_networks/0.csv", people.edges, fmt="%d", delimiter=",")


def start(seed):
    torch.manual_seed(seed)
    runner.init()
    weeks = runner.config["simulation_metadata"]["NUM_WEEKS"]
    rate = torch.full((weeks,), RATE, requires_grad=True)
    runner._set_parameters({R_PATH: rate})
    return lambda steps: run(rate, steps)


def run(rate, steps):
    """Its `step(n)` begins with day 0 and cannot be asked between days: so a clock at its ear."""
    marks = []

    def heard(state, functions, agents):
        if state["current_substep"] == "0":
            marks.append(perf_counter())
        return observe(state, functions, agents)

    runner.controller.observe = heard
    with torch.no_grad() if turn.mode == "no_grad" else contextlib.nullcontext():
        runner.step(steps)
    marks.append(perf_counter())
    caught = runner.state_trajectory[-1][-1]["environment"]["daily_infected"]
    if turn.mode == "backward":
        began = perf_counter()
        caught.sum().backward()
        turn.extra.setdefault("backward_seconds", []).append(perf_counter() - began)
        turn.extra["gradient"] = rate.grad.tolist()
    return np.diff(marks), caught.detach()[:steps].tolist()


with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(sys.stderr):
    settings = Path(temporary, "config.yaml")
    shutil.copy(Path(covid.__path__[0], "yamls/config.yaml"), settings)
    DataLoader._get_config_path = lambda *_: str(settings)
    write_population(Path(temporary, "population"))
    loaded = LoadPopulation(str(Path(temporary, "population")))
    runner = Executor(model=covid, data_loader=DataLoader(covid, loaded)).runner
    observe = runner.controller.observe
    turn.measure(start)
