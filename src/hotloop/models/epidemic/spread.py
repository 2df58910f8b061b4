"""A spread on a network: its compartments, how much each sends, how long each lasts.

Compartment 0 is susceptible; then come the active compartments in order, such as exposed and
infected; then recovered, then dead. At step t, agent i is under the pressure

    P_i = sum over edges j -> i of weights[compartment_j, t - infected_time_j],

summed in fixed-point integers, so that no order of summation changes a bit. With

    lambda_i = factor_t[group_i] * P_i,    p_i = min(lambda_i, 1 - exp(-lambda_i)) * (1 - w_i)

it becomes active when its draw is below p_i. (1 - exp(-x) <= x; the minimum says so to the last
bit, and a draw above lambda needs no exponential.) Agents that are due then move on to the next
compartment; those that leave the last active one die with probability `mortality`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hotloop.errors import SettingError

Array = np.ndarray[Any, Any]

# Streams of draws: who becomes active, and who dies.
INFECTION, OUTCOME = 0, 1
# A step that never comes. int16 holds every step of an episode.
NEVER = 32_767
MAX_STEPS = 32_000
# Fraction bits of the fixed-point weights; fewer only where a weight would not fit 31 bits.
FRACTION_BITS = 24


@dataclass(frozen=True, eq=False)
class SpreadInputs:
    """Parameters and controls of a spread before some steps; all float64.

    rate: (entries,) or (R, entries), multiplies the susceptibility; R by week, in epidemics.
    mortality: () or (R,), the share of those leaving the last active compartment who die.
    contact: (groups,) or (R, groups), multiplies the susceptibility, such as 0 for closed schools.
    isolating: () or (R,), 0 to 1, the share of their willingness that agents act on.
    """

    rate: Array
    mortality: Array
    contact: Array = field(default_factory=lambda: np.ones(1))
    isolating: Array = field(default_factory=lambda: np.zeros(()))


@dataclass(frozen=True, eq=False)
class Spread:
    """The tables of a compartment process with C compartments: 1 + active ones + 2.

    weights: (C, D) float64, what an agent sends by compartment and by steps since it was infected;
    after D - 1 steps it sends nothing.
    durations: steps spent in each active compartment. An agent infected at t leaves the first one
    at t + 1 + durations[0].
    susceptibility: (groups,) float64, the part of `factor` that does not change.
    steps_per_rate: steps that one entry of the rate (R by week) holds; the last entry stays.
    compartment_names: of every compartment, susceptible first.
    """

    weights: Array
    durations: Sequence[int]
    susceptibility: Array
    steps_per_rate: int = 7
    compartment_names: Sequence[str] = ("susceptible", "exposed", "infected", "recovered", "dead")

    def __post_init__(self) -> None:
        compartments, days = self.weights.shape
        if compartments != len(self.durations) + 3 or compartments != len(self.compartment_names):
            raise SettingError(
                f"a spread of {len(self.durations)} active compartments has "
                f"{len(self.durations) + 3} compartments (susceptible, the active ones, recovered, "
                f"dead); got weights for {compartments} and names for "
                f"{len(self.compartment_names)}"
            )
        if not np.isfinite(self.weights).all() or (self.weights < 0).any():
            raise SettingError("weights of a spread must be finite and 0 or more")
        if not np.isfinite(self.susceptibility).all() or (self.susceptibility < 0).any():
            raise SettingError("susceptibility of a spread must be finite and 0 or more")
        if self.weights[[0, -2, -1]].any():
            raise SettingError(
                "only active compartments may send: the weights of the others must be 0"
            )
        if min(self.durations) < 1 or not 2 <= days * len(self.durations) <= 255:
            raise SettingError(
                "durations of a spread are 1 step or more, and its weights hold at most 255 "
                f"entries of active compartments; got durations {tuple(self.durations)} and "
                f"{days * len(self.durations)} entries"
            )

    @property
    def num_active(self) -> int:
        """Number of active compartments; the last active compartment has this number."""
        return len(self.durations)

    @cached_property
    def fraction_bits(self) -> int:
        """Fraction bits of the fixed-point weights, so that every weight fits int32."""
        most = max(float(self.weights.max()), 2.0**-FRACTION_BITS)
        return int(min(FRACTION_BITS, np.floor(30.9 - np.log2(most))))

    @cached_property
    def fixed_weights(self) -> Array:
        """The weights as int32 fixed-point numbers."""
        return np.round(self.weights * 2.0**self.fraction_bits).astype(np.int32)

    def pressure_dtype(self, max_in_degree: int) -> type[np.signedinteger[Any]]:
        """Return the dtype of a sum over so many senders: int32, or int64 where that is too small.

        So one agent with very many neighbours costs no other agent any precision.
        """
        most = int(self.fixed_weights.max()) * max(max_in_degree, 1)
        return np.int32 if most < 2**31 else np.int64

    def factor(self, inputs: SpreadInputs, first_step: int, steps: int) -> Array:
        """Compute what multiplies the pressure by step and group: (1 or R, steps, groups)."""
        rate = np.atleast_2d(inputs.rate)
        entries = np.arange(first_step, first_step + steps) // self.steps_per_rate
        rates = rate[:, np.minimum(entries, rate.shape[-1] - 1)]
        groups = np.atleast_2d(inputs.contact) * self.susceptibility
        return np.ascontiguousarray(rates[:, :, None] * groups[:, None, :])
