"""The compiled steps of a spread: push from few senders or pull by all receivers, then settle.

They run without Python's lock. Push and pull give the same bits: pressures are integers, and a draw
belongs to its agent. The plain reference is in the tests.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hotloop.models.epidemic.spread import INFECTION, NEVER, OUTCOME
from hotloop.sim.draws import GOLDEN, UNIT, mix64, stream_key

Array = np.ndarray[Any, Any]
_GOLDEN, _ONE, _32 = np.uint64(GOLDEN), np.uint64(1), np.uint64(32)
_INFECTION, _OUTCOME = np.uint64(INFECTION), np.uint64(OUTCOME)
AUTO, PUSH, PULL = 0, 1, 2
# Agents and edges of which a dense step keeps running sums at a time: they fit the first cache.
BLOCK_AGENTS, BLOCK_EDGES = 1024, 6144


class Rows(NamedTuple):
    """A network's arrays, see Network."""

    in_ptr: Array
    in_src: Array
    out_ptr: Array
    out_dst: Array


class Tables(NamedTuple):
    """What does not change while stepping."""

    weights: Array  # (compartments, D) int32 fixed point
    levels: Array  # (256,) int32: weights by code, code 0 sends nothing
    durations: Array  # (active compartments,) int64
    scale: float  # of the fixed point
    willing: Array  # (N,) float32, or (0,): how much each agent isolates when asked
    single: bool  # precision: float32 instead of float64


class Agents(NamedTuple):
    """The columns of one run, (N,)."""

    group: Array  # uint8
    compartment: Array  # uint8
    infected_time: Array  # int16
    next_time: Array  # int16


class Work(NamedTuple):
    """What one run keeps between steps; it follows from the columns.

    Agents that became active in the same step go through the compartments together: a cohort. They
    are adjacent in `active`, so that whole cohorts send and move on in one loop.
    """

    active: Array  # (N,) int32: the agents of all cohorts, in the order in which they came
    cohorts: Array  # (C, 5) int64, columns BEGIN to DUE below
    counts: Array  # (8,) int64, entries COHORTS to ACTIVE_STEPS below


class Scratch(NamedTuple):
    """Buffers of one thread within a step; `pressure` is zero between steps."""

    pressure: Array  # (N,) int32, or int64 where somebody has too many neighbours; zero
    touched: Array  # (N,) int32
    found: Array  # (N,) int32
    code: Array  # (N,) uint8


class Part(NamedTuple):
    """Buffers of a dense step over a part of the agents."""

    found: Array  # int32, as many as the part has agents
    sums: Array  # as the pressure, more than a block's edges and more than any agent's
    reached: Array  # (BLOCK_AGENTS + 1,) int32
    felt: Array  # (BLOCK_AGENTS + 1,) as the pressure


# Of a cohort: its agents are active[BEGIN:END], all in one compartment, which they leave at DUE.
BEGIN, END, SINCE, COMPARTMENT, DUE = range(5)
# Of Work.counts: cohorts, agents listed, agents in active compartments; then, since the start:
# steps pushed, steps pulled, edges read, draws, active agents summed over steps.
COHORTS, LISTED, ACTIVE, PUSHED, PULLED, EDGES, DRAWS, ACTIVE_STEPS = range(8)


class Order(NamedTuple):
    """The arguments of `advance` for one run."""

    seed: np.uint64
    first_step: int
    steps: int
    mode: int  # AUTO, PUSH or PULL
    stop_at_pull: bool  # leave dense steps to the caller, who has more threads
    mortality: float
    isolating: float  # 0 to 1, multiplies Tables.willing
    push_agent_ns: float
    pull_ns: float


@njit(nogil=True, cache=True, inline="always")
def _drawn(key: Any, agent: Any) -> Any:
    # Converted from a signed integer: the unsigned one takes several times as long.
    return np.int64(mix64(key + _GOLDEN * (np.uint64(agent) + _ONE)) >> _32) * UNIT


@njit(nogil=True, cache=True, inline="always")
def _falls(agent: Any, felt: Any, factor: Any, keeps: Any, key: Any, single: bool) -> Any:
    """Decide whether an agent under this pressure becomes active.

    felt: the pressure. keeps: 1 - w, the share of its contacts that it keeps.
    """
    # Only numbers are arguments: numba would count references to an array for each agent.
    drawn = _drawn(key, agent)
    if single:
        weak = np.float32(factor) * np.float32(felt)
        if drawn >= weak:
            return False
        return drawn < min(weak, np.float32(1.0) - math.exp(-weak)) * np.float32(keeps)
    rate = factor * felt
    if drawn >= rate:
        return False
    return drawn < min(rate, 1.0 - math.exp(-rate)) * keeps


@njit(nogil=True, cache=True)
def push(
    step: int, factor: Array, order: Order, rows: Rows, tables: Tables, agents: Agents,
    work: Work, scratch: Scratch,
) -> int:  # fmt: skip
    """Send from every active agent to its susceptible neighbours, and draw for those reached.

    Returns: how many became active; their ids are in scratch.found.
    """
    key = stream_key(order.seed, np.uint64(step), _INFECTION)
    compartment, pressure, touched = agents.compartment, scratch.pressure, scratch.touched
    group, out_ptr, out_dst = agents.group, rows.out_ptr, rows.out_dst
    active, weights, newly = work.active, tables.weights, scratch.found
    willing, isolating = tables.willing, order.isolating
    isolates = len(willing) > 0 and isolating > 0.0
    scale, single, days = tables.scale, tables.single, tables.weights.shape[1]
    reached, edges = 0, 0
    for number in range(work.counts[COHORTS]):
        cohort = work.cohorts[number]
        day = step - cohort[SINCE]
        weight = weights[cohort[COMPARTMENT], day] if 0 <= day < days else 0
        if weight == 0:
            continue
        for place in range(cohort[BEGIN], cohort[END]):
            sender = np.uint32(active[place])
            begin, end = out_ptr[sender], out_ptr[np.uint64(sender) + _ONE]
            edges += end - begin
            # No branch here: it would be mispredicted for every other neighbour.
            for e in range(np.uint64(begin), np.uint64(end)):
                receiver = np.uint32(out_dst[e])
                open_ = compartment[receiver] == 0
                touched[reached] = receiver
                reached += open_ & (pressure[receiver] == 0)
                pressure[receiver] += weight * open_
    found = 0
    for place in range(reached):
        agent = np.uint32(touched[place])
        felt = pressure[agent]
        pressure[agent] = 0
        keeps = 1.0 - isolating * willing[agent] if isolates else 1.0
        if _falls(agent, felt * scale, factor[group[agent]], keeps, key, single):
            newly[found] = agent
            found += 1
    work.counts[PUSHED] += 1
    work.counts[EDGES] += edges
    work.counts[DRAWS] += reached
    return found


@njit(nogil=True, cache=True)
def encode(step: int, low: int, high: int, tables: Tables, agents: Agents, code: Array) -> None:
    """Encode what agents low to high send in this step, as one byte each."""
    last_active, days = len(tables.durations), tables.weights.shape[1]
    compartments, infected_time = agents.compartment, agents.infected_time
    for agent in range(np.uint64(low), np.uint64(high)):
        compartment, day = compartments[agent], step - infected_time[agent]
        sends = (compartment > 0) & (compartment <= last_active) & (day >= 0) & (day < days)
        code[agent] = ((compartment - 1) * days + day + 1) * sends


@njit(nogil=True, cache=True)
def pull(
    step: int, low: int, high: int, factor: Array, order: Order, rows: Rows, tables: Tables,
    agents: Agents, code: Array, part: Part,
) -> tuple[int, int, int]:  # fmt: skip
    """Sum over the senders of each susceptible agent low to high, and draw for those reached.

    Block by block: first a running sum over the block's edges, of which every agent takes the
    difference over its own: so there is no short loop whose end the processor has to predict.

    Returns: how many became active (their ids are in part.found), edges, draws.
    """
    # One function: the three loops of a block share its buffers, and calls between them would
    # count references to every array.
    key = stream_key(order.seed, np.uint64(step), _INFECTION)
    levels, sums, reached, in_src = tables.levels, part.sums, part.reached, rows.in_src
    felts, found, compartment, group, in_ptr = (
        part.felt,
        part.found,
        agents.compartment,
        agents.group,
        rows.in_ptr,
    )
    willing, isolating = tables.willing, order.isolating
    isolates = len(willing) > 0 and isolating > 0.0
    scale, single = tables.scale, tables.single
    count, draws, first = 0, 0, low
    while first < high:
        begin = in_ptr[first]
        last = min(first + BLOCK_AGENTS, high)
        while in_ptr[last] - begin >= len(sums) and last > first + 1:
            last = first + (last - first) // 2
        total = sums.dtype.type(0)
        for e in range(np.uint64(in_ptr[last] - begin)):
            sums[e] = total
            sender = np.uint32(in_src[np.uint64(begin) + e])
            total = sums.dtype.type(total + levels[code[sender]])
        sums[np.uint64(in_ptr[last] - begin)] = total
        met, before = np.uint64(0), sums.dtype.type(0)
        for offset in range(np.uint64(last - first)):
            agent = np.uint64(first) + offset
            after = sums[np.uint64(in_ptr[agent + _ONE] - begin)]
            # Also right where the running sum went around: only the difference must fit.
            felt = sums.dtype.type(after - before)
            before = after
            reached[met] = agent
            felts[met] = felt
            met += np.uint64((felt > 0) & (compartment[agent] == 0))
        for place in range(met):
            one = np.uint32(reached[place])
            keeps = 1.0 - isolating * willing[one] if isolates else 1.0
            if _falls(one, felts[place] * scale, factor[group[one]], keeps, key, single):
                found[count] = one
                count += 1
        draws += int(met)
        first = last
    return count, int(in_ptr[high] - in_ptr[low]), draws


@njit(nogil=True, cache=True)
def copy_row(out: Array, values: Array) -> None:
    """Copy (K,) values. `out[:] = values` takes 3 s more to compile, for the text of its error."""
    for n in range(len(out)):
        out[n] = values[n]


@njit(nogil=True, cache=True)
def settle(
    step: int, newly: Array, num_newly: int, order: Order, tables: Tables, agents: Agents,
    work: Work,
) -> int:  # fmt: skip
    """Make one cohort of the agents `newly` found, and move on the cohorts that are due.

    Returns: how many died.
    """
    last_active, counts, cohorts = len(tables.durations), work.counts, work.cohorts
    active, compartments, next_time = work.active, agents.compartment, agents.next_time
    infected_time = agents.infected_time
    begin, due = counts[LISTED], step + 1 + tables.durations[0]
    counts[ACTIVE_STEPS] += counts[ACTIVE]
    for place in range(num_newly):
        agent = np.uint32(newly[place])
        compartments[agent] = 1
        infected_time[agent] = step
        next_time[agent] = due
        active[begin + place] = agent
    key = stream_key(order.seed, np.uint64(step), _OUTCOME)
    kept, deaths, mortality = 0, 0, order.mortality
    for number in range(counts[COHORTS]):
        cohort = cohorts[number]
        if cohort[DUE] <= step:
            cohort[COMPARTMENT] += 1
            on = cohort[COMPARTMENT] <= last_active
            cohort[DUE] = step + tables.durations[cohort[COMPARTMENT] - 1] if on else NEVER
            for place in range(cohort[BEGIN], cohort[END]):
                agent = np.uint32(active[place])
                dies = not on and _drawn(key, agent) < mortality
                deaths += dies
                compartments[agent] = cohort[COMPARTMENT] + dies
                next_time[agent] = cohort[DUE]
            if not on:
                counts[ACTIVE] -= cohort[END] - cohort[BEGIN]
                continue
        copy_row(cohorts[kept], cohort)
        kept += 1
    if num_newly > 0:
        cohort = cohorts[kept]
        cohort[BEGIN], cohort[END] = begin, begin + num_newly
        cohort[SINCE], cohort[COMPARTMENT], cohort[DUE] = step, 1, due
        kept += 1
    counts[COHORTS] = kept
    counts[LISTED] = begin + num_newly
    counts[ACTIVE] += num_newly
    return deaths


@njit(nogil=True, cache=True)
def advance(
    order: Order, factor: Array, rows: Rows, tables: Tables, agents: Agents, work: Work,
    scratch: Scratch, part: Part, infected: Array, deaths: Array,
) -> int:  # fmt: skip
    """Step one run without leaving compiled code.

    factor: (steps, groups) float64. infected, deaths: (episode's steps,), written by step.

    Returns: how many steps were done; fewer than asked where a dense step is left to the caller.
    """
    # A variable: what is called with a literal 0, numba compiles once more for it.
    first, size = int(np.int64(0)), len(agents.compartment)
    for done in range(order.steps):
        step = order.first_step + done
        dense = order.mode == PULL
        if order.mode == AUTO:
            dense = order.push_agent_ns * work.counts[ACTIVE] > order.pull_ns
        if dense and order.stop_at_pull:
            return done
        if dense:
            encode(step, first, size, tables, agents, scratch.code)
            found, edges, draws = pull(
                step, first, size, factor[done], order, rows, tables, agents, scratch.code, part
            )
            work.counts[PULLED] += 1
            work.counts[EDGES] += edges
            work.counts[DRAWS] += draws
        else:
            found = push(step, factor[done], order, rows, tables, agents, work, scratch)
        infected[step] = found
        deaths[step] = settle(step, scratch.found, found, order, tables, agents, work)
    return order.steps
