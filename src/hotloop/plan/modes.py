"""How steps reach the head of a cluster, and the time that one step of all envs takes then.

A mode is one way to bring them there. Its time is the longest of a few chains: things that follow
each other, such as a step of an env and the messages about it. What the longest chain spends most
of its time on limits the rate. MODES is the table of all modes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import SettingError, expect_positive, expect_whole, nearest

Array = NDArray[np.float64]
Chain = Mapping[str, Array]

ENV, CALLS, TRANSPORT, POLICY, LEARNER = "env", "driver calls", "transport", "policy", "learner"
STEP, BATCHED, DOUBLE, SEND, FRAGMENTS = (
    "step",
    "batched",
    "double-buffered",
    "send-recv",
    "fragments",
)
FRAGMENT_S = 1.0  # a fragment lasts about so long where its steps are not given
MOST_FRAGMENT_STEPS = 1_000
LARGEST = 10**9  # nodes, cores, steps: beyond it is a slip


@dataclass(frozen=True)
class Cell:
    """One place of the table: so many nodes, cores in each, seconds for a step, and a mode.

    A core steps one env. fragment_steps: of the mode "fragments"; None: about a second's steps.
    Raises: SettingError for a mode that is not in the table, or a number out of range.
    """

    nodes: int
    cores_per_node: int
    step_s: float
    mode: str = STEP
    fragment_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("nodes", "cores_per_node", "fragment_steps"):
            expect_whole(name, getattr(self, name), 1, LARGEST)
        expect_positive("step_s", self.step_s)
        if self.mode not in MODES:
            raise SettingError(f"mode: no mode {self.mode!r}{nearest(self.mode, MODES)}")

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' if self.nodes != 1 else ''} of {self.cores_per_node} cores"
        mode = "" if self.mode == STEP else f", {self.mode}"
        return f"{nodes}, steps of {self.step_s:g} s{mode}"

    @property
    def cores(self) -> int:
        """Cores of all nodes, N: as many env steps are one step of all envs."""
        return self.nodes * self.cores_per_node

    @property
    def ideal_sps(self) -> float:
        """Env steps/s if nothing but the envs took time."""
        return self.cores / self.step_s

    @property
    def steps_per_fragment(self) -> int:
        """T: steps of a fragment."""
        if self.fragment_steps is not None:
            return self.fragment_steps
        return min(MOST_FRAGMENT_STEPS, max(1, round(FRAGMENT_S / self.step_s)))


@dataclass(frozen=True)
class Parts:
    """What a step of all envs is made of, in s; arrays that broadcast against each other.

    env_s: the envs' own time d. slowest_s: that of the slowest env that a step waits for. core_s:
    the same where a core steps two envs in turn, for one of them. calls_s: the head's time for all
    messages of a step, c₁N. overlap: the share c₂/c₁ of it that adds to d where a step waits for
    all envs: 1 if no message is sent or read while envs step, about one half if sending overlaps
    with stepping. latency_s: what passes beside, whatever the number of envs. carried_s: of the
    network, for all env steps. policy_s: the policy, for all envs. messages: per step.
    """

    env_s: Array
    slowest_s: Array
    core_s: Array
    calls_s: Array
    overlap: Array
    latency_s: Array
    carried_s: Array
    policy_s: Array
    messages: Array


@dataclass(frozen=True)
class Mode:
    """One way to bring steps to the head.

    env_steps: in one message. chains: of a step. waits_for: envs that one step waits for.
    latency_share: how probable it is, before anything is measured, that the latency counts.
    asynchronous: whether workers go on while the learner learns.
    """

    about: str
    env_steps: Callable[[Cell], int]
    chains: Callable[[Parts], tuple[Chain, ...]]
    waits_for: Callable[[Cell], int]
    latency_share: float = 0.1
    asynchronous: bool = False


def _all_envs(parts: Parts) -> tuple[Chain, ...]:
    """max(c₁N + p, d + a + c₂N + p, d_max + a + (c₁ − c₂)N/2 + p, d + a + network + p).

    The slowest env was sent on somewhere in the middle, and others are read while it steps.
    """
    beside = {TRANSPORT: parts.latency_s, POLICY: parts.policy_s}
    carried = {TRANSPORT: parts.latency_s + parts.carried_s, POLICY: parts.policy_s}
    sent_s = np.minimum(parts.overlap, 1 - parts.overlap) * parts.calls_s / 2
    return (
        {CALLS: parts.calls_s, POLICY: parts.policy_s},
        {ENV: parts.env_s, CALLS: parts.overlap * parts.calls_s, **beside},
        {ENV: parts.slowest_s, CALLS: sent_s, **beside},
        {ENV: parts.env_s, **carried},
    )


def _two_halves(parts: Parts) -> tuple[Chain, ...]:
    """max(c₁N + p, d, (d + a + c₂N + p)/2): two envs a core, one steps while the other waits."""
    busy, *waiting = _all_envs(parts)
    halves = ({name: seconds / 2 for name, seconds in chain.items()} for chain in waiting)
    return busy, {ENV: parts.core_s}, {TRANSPORT: parts.carried_s}, *halves


def _each_node(parts: Parts) -> tuple[Chain, ...]:
    """max(c₁N + p, d + a + (c₁N + p)/K): a node waits for its own message alone, one of K."""
    busy = {CALLS: parts.calls_s, POLICY: parts.policy_s}
    own = {name: seconds / parts.messages for name, seconds in busy.items()}
    transport_s = parts.latency_s + parts.carried_s / parts.messages
    alone = {ENV: parts.slowest_s, TRANSPORT: transport_s, **own}
    return busy, {TRANSPORT: parts.carried_s}, alone


def _on_nodes(parts: Parts) -> tuple[Chain, ...]:
    """max(c₁N, d + a + p): the policy acts on the nodes, which wait for no message."""
    return (
        {CALLS: parts.calls_s},
        {TRANSPORT: parts.carried_s},
        {ENV: parts.slowest_s, TRANSPORT: parts.latency_s, POLICY: parts.policy_s},
    )


MODES: dict[str, Mode] = {
    STEP: Mode(
        "a message for each env and step; a step waits for all envs",
        lambda _: 1,
        _all_envs,
        lambda cell: cell.cores,
    ),
    BATCHED: Mode(
        "a message for each node and step; a step waits for all nodes",
        lambda cell: cell.cores_per_node,
        _all_envs,
        lambda cell: cell.cores,
    ),
    DOUBLE: Mode(
        "as batched, with two envs a core: one steps while the other waits for its action",
        lambda cell: cell.cores_per_node,
        _two_halves,
        lambda cell: cell.cores,
    ),
    SEND: Mode(
        "a message for each node and step; a node goes on as soon as its actions are there",
        lambda cell: cell.cores_per_node,
        _each_node,
        lambda cell: cell.cores_per_node,
        latency_share=0.5,
    ),
    FRAGMENTS: Mode(
        "the policy acts on the nodes; a message for each node and fragment",
        lambda cell: cell.cores_per_node * cell.steps_per_fragment,
        _on_nodes,
        lambda cell: cell.cores_per_node,
        latency_share=0.5,
        asynchronous=True,
    ),
}


def chain_times(chains: tuple[Chain, ...]) -> Array:
    """The seconds of each chain, (chains, ...)."""
    sums = [np.asarray(sum(chain.values()), np.float64) for chain in chains]
    return np.stack(np.broadcast_arrays(*sums))


def limit(chains: tuple[Chain, ...]) -> str:
    """The part that the longest chain spends most of its time on, by the medians of the parts."""
    middle = [{name: float(np.median(seconds)) for name, seconds in c.items()} for c in chains]
    longest = max(middle, key=lambda chain: sum(chain.values()))
    return max(longest, key=lambda name: longest[name])
