"""Random numbers by counter: a draw belongs to (seed, step, stream, agent), not to an order.

So batches, active sets, threads, shards and ensembles change no draw. A number is the output of
SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
at a place of its sequence: state + (agent + 1) * GOLDEN, mixed. Each (seed, step, stream) has a
starting state of its own. Kernels, NumPy and torch (CPU and CUDA) compute the same 32 bits.
"""

from typing import Any

import numpy as np
import torch
from numba import njit, uint64

GOLDEN = 0x9E3779B97F4A7C15
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Streams: one for each kind of decision, so that none of them shares a draw with another.
INFECTION, OUTCOME, CONTACTS, INITIAL = 0, 1, 2, 3
UNIT = 2.0**-32

_U = np.uint64
_GOLDEN, _M1, _M2 = _U(GOLDEN), _U(_MIX_1), _U(_MIX_2)
_S30, _S27, _S31, _S32 = _U(30), _U(27), _U(31), _U(32)


@njit(uint64(uint64), inline="always", cache=True)
def mix64(z: Any) -> Any:
    """The finaliser of SplitMix64, a bijection of 64 bits."""
    z = (z ^ (z >> _S30)) * _M1
    z = (z ^ (z >> _S27)) * _M2
    return z ^ (z >> _S31)


@njit(uint64(uint64, uint64, uint64), cache=True)
def stream_key(seed: Any, step: Any, stream: Any) -> Any:
    """Where the draws of one step and stream begin."""
    return mix64((mix64(seed) + _GOLDEN * (step + _U(1))) ^ mix64(stream + _U(1)))


@njit(uint64(uint64, uint64), inline="always", cache=True)
def bits(key: Any, agent: Any) -> Any:
    """The 32 random bits of one agent, in a uint64."""
    return mix64(key + _GOLDEN * (agent + _U(1))) >> _S32


def uniform_numpy(seed: int, step: int, stream: int, agents: np.ndarray | int) -> np.ndarray:
    """Uniform draws in [0, 1), float64, one for each of `agents` (ids, or how many)."""
    ids = np.arange(agents) if isinstance(agents, int) else np.asarray(agents)
    key = _U(stream_key(_U(seed % 2**64), _U(step), _U(stream)))
    with np.errstate(over="ignore"):
        z = key + _GOLDEN * (ids.astype(np.uint64) + _U(1))
        z = (z ^ (z >> _S30)) * _M1
        z = (z ^ (z >> _S27)) * _M2
        z = z ^ (z >> _S31)
    drawn: np.ndarray = (z >> _S32).astype(np.float64) * UNIT
    return drawn


def uniform(
    seed: torch.Tensor, step: torch.Tensor | int, stream: int, agents: torch.Tensor | int
) -> torch.Tensor:
    """Uniform draws in [0, 1) as tensors, with the same bits as the kernels'.

    seed: int64, () or (R,), on the device where the draws are wanted.
    step: an int, or an int64 tensor (), so that a captured graph can count by itself.
    agents: ids int64 (n,), or how many.

    Returns: float64 (n,), or (R, n) for R seeds.
    """
    if isinstance(agents, int):
        agents = torch.arange(agents, device=seed.device)
    start = _mix(seed) + (torch.as_tensor(step, device=seed.device) + 1) * _signed(GOLDEN)
    key = _mix(start ^ int(_signed_mix(stream + 1)))
    drawn = _mix(key.unsqueeze(-1) + (agents + 1) * _signed(GOLDEN))
    return _shift(drawn, 32).to(torch.float64) * UNIT


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _signed_mix(value: int) -> int:
    return _signed(int(mix64(_U(value))))


def _shift(z: torch.Tensor, count: int) -> torch.Tensor:
    # torch has no unsigned shift: the sign bits that come in are taken off.
    return (z >> count) & ((1 << (64 - count)) - 1)


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift(z, 30)) * _signed(_MIX_1)
    z = (z ^ _shift(z, 27)) * _signed(_MIX_2)
    return z ^ _shift(z, 31)
