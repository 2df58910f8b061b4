"""Where the differentiated steps of a spread start: its columns, its controls, its network."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hotloop.errors import SettingError, ShapeError
from hotloop.models.epidemic.gradient.compact_network import CompactNetwork, build_compact_network
from hotloop.models.epidemic.gradient.sender_pairs import SenderPairs, build_sender_pairs
from hotloop.models.epidemic.gradient.structure import (
    SpreadStructure,
    build_structure,
    kinds_of_agents,
)
from hotloop.models.epidemic.spread import Spread
from hotloop.sim.network import Network

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class SpreadStart:
    """Where differentiated steps start, and all that stays the same whatever the parameters are.

    What follows from the network is built on first use and kept: keep the start, and change
    parameters by `SpreadProblem.at`.

    Args:
        group, compartment: (N,) uint8, the columns before `first_step`.
        infected_time, next_time: (N,) int16.
        contact: (groups,) or (steps, groups), multiplies the susceptibility, such as 0 for closed
            schools; None for 1.
        willing: (N,) from 0 to 1, or None.
        isolating: 0 to 1, one number or (steps,); agents become active with probability
            p (1 - isolating * willing).
        by_controls: whether gradients by contact and isolating are wanted, too.

    Raises: SettingError for a network that changes with the steps; ShapeError.
    """

    spread: Spread
    network: Network
    group: Array
    compartment: Array
    infected_time: Array
    next_time: Array
    first_step: int = 0
    contact: Array | None = None
    willing: Array | None = None
    isolating: Array | float = 0.0
    by_controls: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network):
            raise SettingError(
                f"gradients need one network for all steps, got {type(self.network).__name__}; "
                "use a Network, or run without a gradient"
            )
        size = self.network.num_agents
        for name in ("group", "compartment", "infected_time", "next_time", "willing"):
            column = getattr(self, name)
            if column is not None and column.shape != (size,):
                raise ShapeError(
                    f"{name} of a gradient's start: expected ({size},), one for each agent of the "
                    f"network; got {column.shape}"
                )

    @cached_property
    def structure(self) -> SpreadStructure:
        """Kinds of agents, and who sends when."""
        own = self.spread.susceptibility
        asked = self.by_controls or bool(np.any(self.isolating))
        kinds = kinds_of_agents(
            own if self.contact is None else own * self.contact,
            self.group,
            self.willingness if asked else None,
            by_controls=self.by_controls,
        )
        columns = np.stack([self.compartment, self.infected_time, self.next_time])
        return build_structure(self.spread, self.network, columns, self.first_step, kinds)

    @cached_property
    def compact(self) -> CompactNetwork:
        """The network of message passing."""
        return build_compact_network(self.structure, self.network)

    @cached_property
    def sender_pairs(self) -> SenderPairs:
        """The network of the expected model."""
        return build_sender_pairs(self.structure, self.network)

    @cached_property
    def willingness(self) -> Array:
        """(N,) float64; 0 where nobody isolates."""
        willing = np.zeros(self.network.num_agents) if self.willing is None else self.willing
        return np.asarray(willing, np.float64)

    def control(self, step: int) -> tuple[Array, float]:
        """Contact (groups,) and isolating of a step counted from the start."""
        contact = np.ones_like(self.spread.susceptibility) if self.contact is None else self.contact
        isolating = np.asarray(self.isolating, np.float64)
        return (
            contact if contact.ndim == 1 else contact[step],
            float(isolating if isolating.ndim == 0 else isolating[step]),
        )

    @property
    def controls_change(self) -> bool:
        """Whether the controls are given by step."""
        by_step = self.contact is not None and self.contact.ndim > 1
        return by_step or np.ndim(self.isolating) > 0
