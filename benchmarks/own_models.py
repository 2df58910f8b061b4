"""Three models, each written four ways: in substeps, plain torch, NumPy and a compiled loop.

The plain ways are what a good user of that library writes: float32 messages times a sparse matrix
in compressed rows in torch (twice as fast as index_add), a sum over the edges' prefix in NumPy.
Their draws are the library's own; in torch the float32 ones of `torch.rand`, the fastest it has.
"""

import importlib
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hotloop.sim import Executor, Model, Network, RandomContacts, Runner, Series, Substep

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
tutorial = importlib.import_module("14_sir")

EPISODE, CONTACTS = 100, 6
BETA, GAMMA, PULL, NOISE = 0.09, 0.1, 0.3, 0.02
SICK, OPINION, CASES = "agents/people/sick", "agents/people/opinion", "environment/cases"
TIES, STRANGERS, SPREAD = "networks/ties", "networks/strangers", "environment/spread"


class Way(ABC):
    """One model written one way."""

    @abstractmethod
    def reset(self) -> None:
        """Back to the first state."""

    @abstractmethod
    def step(self, steps: int) -> None:
        """Do so many steps."""

    @abstractmethod
    def total(self) -> float:
        """A number that the ways of one model have in common, up to chance."""


class InSubsteps(Way):
    """The model in hotloop."""

    def __init__(self, model: Model, threads: int | None, series: str, mean: bool) -> None:
        self.runner: Runner = Executor(model, device="cpu", threads=threads).runner
        self.runner.init()
        self.series, self.mean = series, mean

    def reset(self) -> None:
        self.runner.reset()

    def step(self, steps: int) -> None:
        self.runner.step(steps)

    def total(self) -> float:
        entries = self.runner.state[self.series]
        return float(entries[self.runner.state.step - 1] if self.mean else entries.sum())


class Plain(Way):
    """A model without hotloop: one array of agents, a sum for each step."""

    def __init__(self, start: Any, today: Callable[[Any], tuple[Any, Any]], mean: bool) -> None:
        self.start, self.today, self.mean = start, today, mean
        self.reset()

    def reset(self) -> None:
        self.agents = self.start.clone() if isinstance(self.start, Tensor) else self.start.copy()
        self.sums: list[Any] = []

    def step(self, steps: int) -> None:
        with torch.no_grad():
            for _ in range(steps):
                self.agents, result = self.today(self.agents)
                self.sums.append(result)

    def total(self) -> float:
        return float(self.sums[-1] if self.mean else sum(float(entry) for entry in self.sums))


def sparse(network: Network) -> Tensor:
    """The network as torch's matrix in compressed rows, of float32 ones."""
    pointers, columns = (torch.from_numpy(a) for a in (network.in_ptr, network.in_src))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that such matrices are in beta
        return torch.sparse_csr_tensor(
            pointers, columns, torch.ones(len(columns)), size=(network.num_agents,) * 2,
            check_invariants=False,
        )  # fmt: skip


def prefix_sums(network: Network, messages: np.ndarray) -> np.ndarray:
    """Sums over each row of senders; integers add without rounding."""
    sums = np.zeros(network.num_edges + 1, messages.dtype)
    np.cumsum(messages[network.in_src], out=sums[1:])
    result: np.ndarray = sums[network.in_ptr[1:]] - sums[network.in_ptr[:-1]]
    return result


# --- the epidemic of the example --------------------------------------------------------------


def sir(size: int) -> dict[str, Callable[[int | None], Way]]:
    network = Network.from_edges(size, tutorial.small_world(np.random.default_rng(0), size))
    start = (np.arange(size) % 500 == 0).astype(np.uint8)
    model = replace(
        tutorial.MODEL, populations={"people": {"stage": start}}, sizes={"people": size},
        networks={"friends": network}, num_steps_per_episode=EPISODE,
    )  # fmt: skip
    matrix, rng = sparse(network), np.random.default_rng(1)

    def in_torch(stage: Tensor) -> tuple[Tensor, Tensor]:
        sick_friends = matrix @ (stage == 1).float()
        risk = 1 - (1 - BETA) ** sick_friends
        newly = (stage == 0) & (torch.rand(size) < risk)
        stage = torch.where(newly, 1, stage)
        well = (stage == 1) & (torch.rand(size) < GAMMA)
        return torch.where(well, 2, stage), newly.sum()

    def in_numpy(stage: np.ndarray) -> tuple[np.ndarray, Any]:
        sick_friends = prefix_sums(network, (stage == 1).astype(np.int32))
        risk = 1 - np.float32(1 - BETA) ** sick_friends.astype(np.float32)
        newly = (stage == 0) & (rng.random(size, np.float32) < risk)
        stage = np.where(newly, np.uint8(1), stage)
        well = (stage == 1) & (rng.random(size, np.float32) < GAMMA)
        return np.where(well, np.uint8(2), stage), newly.sum()

    def in_loop(stage: np.ndarray) -> tuple[np.ndarray, Any]:
        return sir_loop(network.in_ptr, network.in_src, stage, BETA, GAMMA)

    return {
        "hotloop": lambda threads: InSubsteps(model, threads, CASES, False),
        "plain torch": lambda _: Plain(torch.from_numpy(start), in_torch, False),
        "NumPy": lambda _: Plain(start, in_numpy, False),
        "compiled loop": lambda _: Plain(start, in_loop, False),
    }


@njit(cache=True)
def sir_loop(pointers, senders, stage, beta, gamma):
    after, cases = stage.copy(), 0
    for agent in range(len(stage)):
        if stage[agent] == 0:
            sick = 0
            for e in range(pointers[agent], pointers[agent + 1]):
                sick += stage[senders[e]] == 1
            if sick and np.random.random() < 1 - (1 - beta) ** sick:
                after[agent] = 1
                cases += 1
        if after[agent] == 1 and np.random.random() < gamma:
            after[agent] = 2
    return after, cases


# --- opinions that move to the neighbours' mean -----------------------------------------------


class Listen(Substep):
    """Everybody moves some way to the mean of the neighbours' opinions, and a bit at random."""

    reads, writes = (OPINION, TIES), (OPINION, SPREAD)

    def __init__(self, degree: Tensor) -> None:
        super().__init__(pull=PULL)
        self.degree = degree

    def observe(self, state):
        return {"heard": state[TIES].sum_from(state[OPINION]) / self.degree}

    def transition(self, state, action):
        own = state[OPINION]
        noise = NOISE * (state.uniform(0, "people").float() - 0.5)
        opinion = own + self.parameter("pull") * (action["heard"] - own) + noise
        return {OPINION: opinion, SPREAD: opinion.std(-1)}


def opinions(size: int) -> dict[str, Callable[[int | None], Way]]:
    network = Network.from_edges(size, tutorial.small_world(np.random.default_rng(0), size))
    start = np.random.default_rng(2).random(size, np.float32)
    degrees = np.diff(network.in_ptr).astype(np.float32)
    degree = torch.from_numpy(degrees)
    model = Model(
        "opinions", substeps=(Listen(degree),), populations={"people": {"opinion": start}},
        sizes={"people": size}, environment={"spread": Series()}, networks={"ties": network},
        num_steps_per_episode=EPISODE,
    )  # fmt: skip
    matrix, rng = sparse(network), np.random.default_rng(1)

    def in_torch(own: Tensor) -> tuple[Tensor, Tensor]:
        heard = (matrix @ own) / degree
        opinion = own + PULL * (heard - own) + NOISE * (torch.rand(size) - 0.5)
        return opinion, opinion.std()

    def in_numpy(own: np.ndarray) -> tuple[np.ndarray, Any]:
        heard = np.add.reduceat(own[network.in_src], network.in_ptr[:-1]) / degrees
        noise = NOISE * (rng.random(size, np.float32) - np.float32(0.5))
        opinion = own + PULL * (heard - own) + noise
        return opinion, opinion.std()

    def in_loop(own: np.ndarray) -> tuple[np.ndarray, Any]:
        opinion = listen_loop(network.in_ptr, network.in_src, own, PULL, NOISE)
        return opinion, opinion.std()

    return {
        "hotloop": lambda threads: InSubsteps(model, threads, SPREAD, True),
        "plain torch": lambda _: Plain(torch.from_numpy(start), in_torch, True),
        "NumPy": lambda _: Plain(start, in_numpy, True),
        "compiled loop": lambda _: Plain(start, in_loop, True),
    }


@njit(cache=True)
def listen_loop(pointers, senders, own, pull, noise):
    after = np.empty_like(own)
    for agent in range(len(own)):
        heard = np.float32(0)
        for e in range(pointers[agent], pointers[agent + 1]):
            heard += own[senders[e]]
        heard /= pointers[agent + 1] - pointers[agent]
        by_chance = noise * (np.random.random() - 0.5)
        after[agent] = own[agent] + pull * (heard - own[agent]) + by_chance
    return after


# --- an infection among strangers -------------------------------------------------------------


class Meet(Substep):
    """The healthy meet strangers, and may catch it from each; the sick get well."""

    reads, writes = (SICK, STRANGERS), (SICK, CASES)

    def observe(self, state):
        return {"met": state[STRANGERS].sum_from(state[SICK], state.step)}

    def transition(self, state, action):
        sick = state[SICK]
        risk = 1 - (1 - self.parameter("beta")) ** action["met"]
        newly = ~sick & (state.uniform(0, "people") < risk)
        well = sick & (state.uniform(1, "people") < self.parameter("gamma"))
        return {SICK: (sick | newly) & ~well, CASES: newly.sum(-1)}


def strangers(size: int) -> dict[str, Callable[[int | None], Way]]:
    start = np.arange(size) % 500 == 0
    model = Model(
        "strangers", substeps=(Meet(beta=BETA / 2, gamma=GAMMA),),
        populations={"people": {"sick": start}}, sizes={"people": size},
        environment={"cases": Series()}, networks={"strangers": RandomContacts(size, CONTACTS)},
        num_steps_per_episode=EPISODE,
    )  # fmt: skip
    rng = np.random.default_rng(1)

    def in_torch(sick: Tensor) -> tuple[Tensor, Tensor]:
        senders = torch.randint(size, (size * CONTACTS,), dtype=torch.int32)
        met = sick.float().index_select(0, senders).view(size, CONTACTS).sum(1)
        risk = 1 - (1 - BETA / 2) ** met
        newly = ~sick & (torch.rand(size) < risk)
        well = sick & (torch.rand(size) < GAMMA)
        return (sick | newly) & ~well, newly.sum()

    def in_numpy(sick: np.ndarray) -> tuple[np.ndarray, Any]:
        senders = rng.integers(0, size, (size, CONTACTS), np.int32)
        met = sick[senders].sum(1, dtype=np.float32)
        risk = 1 - np.float32(1 - BETA / 2) ** met
        newly = ~sick & (rng.random(size, np.float32) < risk)
        well = sick & (rng.random(size, np.float32) < GAMMA)
        return (sick | newly) & ~well, newly.sum()

    def in_loop(sick: np.ndarray) -> tuple[np.ndarray, Any]:
        return meet_loop(sick, CONTACTS, BETA / 2, GAMMA)

    return {
        "hotloop": lambda threads: InSubsteps(model, threads, CASES, False),
        "plain torch": lambda _: Plain(torch.from_numpy(start), in_torch, False),
        "NumPy": lambda _: Plain(start, in_numpy, False),
        "compiled loop": lambda _: Plain(start, in_loop, False),
    }


@njit(cache=True)
def meet_loop(sick, contacts, beta, gamma):
    after, cases = sick.copy(), 0
    for agent in range(len(sick)):
        if sick[agent]:
            after[agent] = np.random.random() >= gamma
            continue
        met = 0
        for _ in range(contacts):
            met += sick[int(np.random.random() * len(sick))]
        if met and np.random.random() < 1 - (1 - beta) ** met:
            after[agent] = True
            cases += 1
    return after, cases


MODELS = {"sir": sir, "opinions": opinions, "strangers": strangers}
