"""Compiled parts of message passing and the expected model: tables of transmission, and sends.

With f_k(t) the factor of kind k at step t and H_k(tau, d) =
sum over d' <= d of f_k(tau + d') sends[d'], a sender infected at tau has not reached a receiver of
kind k after d steps with probability theta_k(tau, d) = exp(-H_k(tau, d)).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]
# Pairs that are summed together: their memory fits the first-level cache.
BLOCK = 2048


class Senders(NamedTuple):
    """The arrays of SpreadStructure and network that tell who sends."""

    kind: Array
    susceptible: Array
    sends: Array
    initial_agent: Array
    initial_row: Array
    initial_ptr: Array
    initial_sends: Array
    out_ptr: Array
    out_dst: Array


class Tables(NamedTuple):
    """The tables that follow from the parameters."""

    factor: Array  # (T, K) float64, of the pressure on each kind, less what isolation takes
    theta: Array  # (T, L + 1, K) float32
    drop: Array  # (K, T, L + 1) float32: theta(d - 1) - theta(d); 0 from step T on
    value: Array  # (T,) float32: what an infection at t counts by itself


@njit(nogil=True, cache=True)
def theta_table(factor: Array, sends: Array) -> tuple[Array, Array]:
    """Tabulate theta (T, L + 1, K) and its drops (K, T, L + 1), float32."""
    steps, kinds = factor.shape
    active_steps = len(sends) - 1
    theta = np.ones((steps, active_steps + 1, kinds), np.float32)
    drop = np.zeros((kinds, steps, active_steps + 1), np.float32)
    for kind in range(kinds):
        for at in range(steps):
            hazard, last = 0.0, 1.0
            for day in range(1, active_steps + 1):
                if at + day < steps:
                    hazard += factor[at + day, kind] * sends[day]
                chance = math.exp(-hazard)
                theta[at, day, kind] = chance
                drop[kind, at, day] = last - chance
                last = chance
    return theta, drop


@njit(nogil=True, cache=True)
def send_initial(step: int, senders: Senders, pressure: Array, touched: Array, reached: int) -> int:
    """Add what the initial agents send at a step; returns how many agents are touched."""
    if step >= senders.initial_sends.shape[1]:
        return reached
    for n in range(len(senders.initial_agent)):
        weight = senders.initial_sends[senders.initial_row[n], step]
        if weight > 0.0:
            reached = _send(senders.initial_agent[n], weight, senders, pressure, touched, reached)
    return reached


@njit(nogil=True, cache=True)
def send_infected(
    step: int, order: Array, order_ptr: Array, senders: Senders, pressure: Array, touched: Array,
    reached: int,
) -> int:  # fmt: skip
    """Add what agents infected in the run send at a step; returns how many are touched."""
    for day in range(1, min(len(senders.sends) - 1, step) + 1):
        weight = senders.sends[day]
        if weight > 0.0:
            for n in range(order_ptr[step - day], order_ptr[step - day + 1]):
                reached = _send(order[n], weight, senders, pressure, touched, reached)
    return reached


@njit(nogil=True, cache=True, inline="always")
def _send(
    agent: int, weight: float, senders: Senders, pressure: Array, touched: Array, reached: int
) -> int:
    for e in range(senders.out_ptr[agent], senders.out_ptr[agent + 1]):
        receiver = senders.out_dst[e]
        if senders.susceptible[receiver] and receiver != agent:
            if pressure[receiver] == 0.0:
                touched[reached] = receiver
                reached += 1
            pressure[receiver] += weight
    return reached


@njit(nogil=True, cache=True, fastmath={"contract"})
def weighted_sum(weights: Array, days: int, base: int, sign: int, ring: Array, out: Array) -> None:
    """Compute out = sum over d from 1 to days of weights[d] * ring[(base + sign * d) mod rows].

    Four days at a time: each pass over the block costs as much as its loads and stores.
    """
    rows, none = len(ring), np.float32(0.0)
    out[:] = none
    day = 1
    while day <= days:
        if weights[day] == none:
            day += 1
            continue
        second, third, fourth = min(day + 1, days), min(day + 2, days), min(day + 3, days)
        w1 = weights[day]
        w2 = weights[second] if day + 1 <= days else none
        w3 = weights[third] if day + 2 <= days else none
        w4 = weights[fourth] if day + 3 <= days else none
        r1, r2 = ring[(base + sign * day) % rows], ring[(base + sign * second) % rows]
        r3, r4 = ring[(base + sign * third) % rows], ring[(base + sign * fourth) % rows]
        for n in range(np.uint64(len(out))):
            out[n] += w1 * r1[n] + w2 * r2[n] + w3 * r3[n] + w4 * r4[n]
        day += 4
