"""The program of a spread on the CPU: any number of steps without Python between them.

A single run pulls when many agents are active, with several threads where they are faster on this
network, and pushes with one thread when few are; in an ensemble every thread steps its share of the
replicates. Threads change no bit.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch

from hotloop.errors import SettingError
from hotloop.models.epidemic.buffers import (
    gather_work,
    make_buffers,
    make_scratch,
    part_bounds,
    rows_of,
)
from hotloop.models.epidemic.kernels import (
    ACTIVE_STEPS,
    AUTO,
    DRAWS,
    EDGES,
    PULL,
    PULLED,
    PUSH,
    PUSHED,
    Agents,
    Order,
    Part,
    Rows,
    Tables,
    Work,
    advance,
    encode,
    pull,
    push,
    settle,
)
from hotloop.models.epidemic.spread import NEVER, Spread, SpreadInputs
from hotloop.sim.network import AnyNetwork, Network, RandomContacts
from hotloop.sim.threads import Threads, thread_count

Array = np.ndarray[Any, Any]
Mode = Literal["auto", "push", "pull"]
MODES: dict[str, int] = {"auto": AUTO, "push": PUSH, "pull": PULL}
# Senders with which push and pull are timed on the actual network.
PROBED_SENDERS = 2_000


def costs_of(threads: int) -> str:
    """Name the costs under which a network keeps them."""
    return f"costs of a spread, {threads} threads"


@dataclass(frozen=True, eq=False)
class SpreadColumns:
    """The state's tensors that a spread reads and writes, on the CPU and contiguous.

    group: uint8 (N,). compartment: uint8, infected_time and next_time: int16, (N,) or (R, N).
    infected, deaths: float32 (T,) or (R, T), the counts of each step.
    """

    group: torch.Tensor
    compartment: torch.Tensor
    infected_time: torch.Tensor
    next_time: torch.Tensor
    infected: torch.Tensor
    deaths: torch.Tensor


@dataclass(frozen=True)
class Costs:
    """The costs of push and pull on one network, in nanoseconds."""

    push_agent_ns: float  # with the edges that an agent sends on, on average
    pull_ns: float  # by one thread
    shared_pull_ns: float  # by all threads; no less than pull_ns where there is one

    @property
    def shares(self) -> bool:
        """Whether a pull is shared between the threads."""
        return self.shared_pull_ns < self.pull_ns


class SpreadProgram:
    """Steps the columns of a spread in place.

    inputs: called before stepping, for the present parameters and controls.
    seeds: one for each replicate. willing: float32 (N,), how much each agent isolates when asked.
    mode: "push" (active set), "pull" (dense), or "auto": the cheaper one of each step, by costs
    measured on this network. threads: None for one a core that the process may use.
    """

    name = "fused cpu"
    acts_on = frozenset({"active_set", "precision"})

    def __init__(
        self,
        spread: Spread,
        network: AnyNetwork,
        columns: SpreadColumns,
        seeds: list[int],
        inputs: Callable[[], SpreadInputs],
        *,
        willing: Array | None = None,
        mode: Mode = "auto",
        threads: int | None = None,
        single_precision: bool = False,
    ) -> None:
        if mode not in MODES:
            raise SettingError(f"active set {mode!r} is none of {', '.join(map(repr, MODES))}")
        if threads is not None and threads < 1:
            raise SettingError(f"threads: expected 1 or more, got {threads}")
        self.spread, self.network, self.columns = spread, network, columns
        self.threads = thread_count(threads)
        self._inputs, self._seeds = inputs, seeds
        self._mode = MODES[mode]
        self._tables = _tables(spread, willing, single_precision)
        self._runs, self._days = _runs_of(columns)
        self._work = [gather_work(agents, None, spread) for agents in self._runs]
        self._pressure = spread.pressure_dtype(network.max_in_degree)
        workers = min(self.threads, len(self._runs))
        size = columns.compartment.shape[-1]
        self._scratch = [make_scratch(size, self._pressure) for _ in range(workers)]
        self._buffers = [make_buffers(network.max_in_degree, self._pressure) for _ in self._scratch]
        self._threads = Threads(self.threads, "hotloop-spread")
        self._measured_once: dict[str, Any] = {}
        self._prepared = True
        if self._needs_costs and isinstance(network, Network):
            self._costs_on(network)  # now, and not in the first step

    # --- stepping -----------------------------------------------------------------------------

    def columns_changed(self) -> None:
        """Note that the columns were changed from outside: the cohorts are made anew."""
        self._prepared = False

    def advance(self, first_step: int, steps: int) -> None:
        """Step every run from first_step on; `steps` of them."""
        if steps < 1:
            return
        if isinstance(self.network, Network):
            self._advance(self.network, first_step, steps)
            return
        for step in range(first_step, first_step + steps):
            self._advance(self.network.at(step), step, 1)

    def _advance(self, network: Network, first_step: int, steps: int) -> None:
        rows = rows_of(network)
        if not self._prepared:
            for run, agents in enumerate(self._runs):
                self._work[run] = gather_work(agents, self._work[run], self.spread)
            self._prepared = True
        inputs = self._inputs()
        factor = self.spread.factor(inputs, first_step, steps)
        orders = self._orders(inputs, network, first_step, steps)
        if len(self._runs) == 1:
            self._advance_one(rows, network, orders[0], factor[0])
            return
        workers = len(self._scratch)

        def share(worker: int) -> None:
            for run in range(worker, len(self._runs), workers):
                self._fused(rows, orders[run], factor[run % len(factor)], run, worker)

        if workers == 1:
            share(0)
        else:
            self._threads.run(share, range(workers))

    def _fused(self, rows: Rows, order: Order, factor: Array, run: int, worker: int) -> int:
        infected, deaths = self._days[run]
        done: int = advance(
            order, factor, rows, self._tables, self._runs[run], self._work[run],
            self._scratch[worker], self._part(worker), infected, deaths,
        )  # fmt: skip
        return done

    def _advance_one(self, rows: Rows, network: Network, order: Order, factor: Array) -> None:
        """Step one run; its dense steps are shared between the threads."""
        shares = self._needs_costs and self._costs_on(network).shares
        order = order._replace(stop_at_pull=shares)
        left = order.steps
        while left:
            rest = order._replace(first_step=order.first_step + order.steps - left, steps=left)
            done = self._fused(rows, rest, factor[order.steps - left :], 0, 0)
            left -= done
            if left:
                step = order.first_step + order.steps - left
                self._dense_step(rows, order, factor[order.steps - left], step)
                left -= 1

    def _dense_step(self, rows: Rows, order: Order, factor: Array, step: int) -> None:
        agents, work, scratch = self._runs[0], self._work[0], self._scratch[0]
        parts = self._parts(rows)
        sums = self._shared_pull(rows, order, factor, step, agents, parts)
        found = 0
        for (low, _, _), (count, edges, draws) in zip(parts, sums, strict=True):
            scratch.found[found : found + count] = scratch.found[low : low + count]
            found += count
            work.counts[EDGES] += edges
            work.counts[DRAWS] += draws
        work.counts[PULLED] += 1
        infected, deaths = self._days[0]
        infected[step] = found
        deaths[step] = settle(step, scratch.found, found, order, self._tables, agents, work)

    def _parts(self, rows: Rows) -> list[tuple[int, int, Part]]:
        """List the agents of each part, from and to, with its buffers."""
        return [
            (low, high, self._part(number, low, high))
            for number, (low, high) in enumerate(pairwise(part_bounds(rows, self.threads)))
        ]

    def _shared_pull(
        self, rows: Rows, order: Order, factor: Array, step: int, agents: Agents,
        parts: list[tuple[int, int, Part]],
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        """Pull in parts, on all threads; returns what `pull` returns of each part."""
        code = self._scratch[0].code

        def sending(part: tuple[int, int, Part]) -> None:
            encode(step, part[0], part[1], self._tables, agents, code)

        def feeling(part: tuple[int, int, Part]) -> tuple[int, int, int]:
            low, high, buffers = part
            sums: tuple[int, int, int] = pull(
                step, low, high, factor, order, rows, self._tables, agents, code, buffers
            )
            return sums

        # All parts must be encoded before any of them is summed.
        self._threads.run(sending, parts)
        return self._threads.run(feeling, parts)

    def _part(self, number: int, low: int = 0, high: int | None = None) -> Part:
        """Return the buffers of a part of the agents; one thread uses each number at a time."""
        while len(self._buffers) <= number:
            self._buffers.append(make_buffers(self.network.max_in_degree, self._pressure))
        scratch = self._scratch[number if high is None else 0]
        return Part(scratch.found[low:high], *self._buffers[number])

    # --- arguments of the kernels ------------------------------------------------------------

    def _orders(
        self, inputs: SpreadInputs, network: Network, first_step: int, steps: int
    ) -> list[Order]:
        costs = self._costs_on(network) if self._needs_costs else Costs(0.0, 0.0, 0.0)
        runs = len(self._runs)
        mortality, isolating = np.ravel(inputs.mortality), np.ravel(inputs.isolating)
        order = Order(
            np.uint64(0), first_step, steps, self._mode, False, 0.0, 0.0,
            costs.push_agent_ns,
            min(costs.pull_ns, costs.shared_pull_ns),
        )  # fmt: skip
        return [
            order._replace(
                seed=np.uint64(self._seeds[run] % 2**64),
                mortality=float(mortality[run % len(mortality)]),
                isolating=float(isolating[run % len(isolating)]),
            )
            for run in range(runs)
        ]

    @property
    def _may_share(self) -> bool:
        return self.threads > 1 and len(self._runs) == 1

    @property
    def _needs_costs(self) -> bool:
        return self._mode == AUTO or (self._mode == PULL and self._may_share)

    def _costs_on(self, network: Network) -> Costs:
        # Contacts that are drawn anew cost as much as those measured; other networks stay.
        is_drawn = isinstance(self.network, RandomContacts)
        known = self._measured_once if is_drawn else network.measured
        key = costs_of(self.threads if self._may_share else 1)
        if key not in known:
            known[key] = self._measured(rows_of(network))
        costs: Costs = known[key]
        return costs

    def _measured(self, rows: Rows) -> Costs:
        """Time push and pull on this network, with random senders that infect nobody."""
        size = len(rows.in_ptr) - 1
        rng = np.random.default_rng(0)
        senders = rng.choice(size, min(3 * PROBED_SENDERS, size), replace=False).astype(np.int32)
        agents = Agents(
            self._runs[0].group, *(np.zeros(size, d) for d in (np.uint8, np.int16, np.int16))
        )
        agents.compartment[senders] = 1
        day = int(np.argmax(self._tables.weights[1]))
        scratch, part = self._scratch[0], self._part(0)
        silent = Order(np.uint64(0), 0, 1, PUSH, False, 0.0, 0.0, 0.0, 0.0)
        factor = np.zeros(max(256, len(self.spread.susceptibility)))

        def pushed(some: Array) -> float:
            work = Work(some, np.array([[0, len(some), 0, 1, NEVER]]), np.array([1, *[0] * 7]))
            begin = time.perf_counter_ns()
            push(day, factor, silent, rows, self._tables, agents, work, scratch)
            return float(time.perf_counter_ns() - begin) / max(len(some), 1)

        def pulled() -> float:
            begin = time.perf_counter_ns()
            encode(0, 0, size, self._tables, agents, scratch.code)
            pull(0, 0, size, factor, silent, rows, self._tables, agents, scratch.code, part)
            return float(time.perf_counter_ns() - begin)

        parts = self._parts(rows) if self._may_share else []

        def shared() -> float:
            begin = time.perf_counter_ns()
            self._shared_pull(rows, silent, factor, 0, agents, parts)
            return float(time.perf_counter_ns() - begin)

        # Others each time: what the same senders reach would be in a cache by then.
        push_ns = min(pushed(some) for some in np.array_split(senders, 3) if len(some))
        if not self._may_share:
            pull_ns = min(pulled() for _ in range(2))
            return Costs(push_ns, pull_ns, pull_ns)
        shared()  # starts the threads
        # In turns, so that a slow moment affects both.
        turns = [(pulled(), shared()) for _ in range(3)]
        return Costs(push_ns, min(t[0] for t in turns), min(t[1] for t in turns))

    # --- counters ----------------------------------------------------------------------------

    def counters(self) -> dict[str, float]:
        """Count since it was made: steps pushed, steps pulled, edges, draws, active agent steps."""
        counts = np.sum([work.counts for work in self._work], axis=0)
        return {
            "steps_pushed": float(counts[PUSHED]),
            "steps_pulled": float(counts[PULLED]),
            "edges": float(counts[EDGES]),
            "draws": float(counts[DRAWS]),
            "active_agent_steps": float(counts[ACTIVE_STEPS]),
        }

    @property
    def nbytes(self) -> int:
        """Bytes kept beside the columns and the network."""
        kept = [array for work in self._work for array in work]
        kept += [array for scratch in self._scratch for array in scratch]
        return sum(array.nbytes for array in kept)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()


def _tables(spread: Spread, willing: Array | None, single_precision: bool) -> Tables:
    weights = spread.fixed_weights
    levels = np.zeros(256, np.int32)
    sent = weights[1 : spread.num_active + 1].ravel()
    levels[1 : len(sent) + 1] = sent
    return Tables(
        weights,
        levels,
        np.array(spread.durations),
        2.0**-spread.fraction_bits,
        np.zeros(0, np.float32) if willing is None else willing,
        single_precision,
    )


def _runs_of(columns: SpreadColumns) -> tuple[list[Agents], list[tuple[Array, Array]]]:
    """The columns of each run, and its daily infected and deaths, as arrays on the same memory."""
    size = columns.compartment.shape[-1]
    per_run = (columns.compartment, columns.infected_time, columns.next_time)
    rows = zip(*(column.view(-1, size).numpy() for column in per_run), strict=True)
    counts = (columns.infected, columns.deaths)
    days = zip(*(c.view(-1, c.shape[-1]).numpy() for c in counts), strict=True)
    return [Agents(columns.group.numpy(), *run) for run in rows], list(days)
