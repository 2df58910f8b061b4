"""How fast are the learners' kernels beside the same formula in NumPy and in torch?

Each kernel of `hotloop.ops`, the loop over time steps in NumPy, and where torch is installed the
same loop over CPU tensors, in float32 and on one thread. They take turns in one process, in random
order; before that their results are compared.

    OMP_NUM_THREADS=1 python benchmarks/ops.py --write docs/benchmarks/ops.md
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns
from types import ModuleType
from typing import Any

import numpy as np

from hotloop import ops
from hotloop.loop.figures import percentile_interval, smooth_median
from tables import table, write_page

try:
    import torch
except ImportError:
    torch = None

SHAPES = ((20, 32), (128, 64), (128, 1024))
ROUNDS = 100
TURN_NS = 1_000_000  # calls of one way are repeated to about this long, so that the clock is fine
GAMMA, LAMBDA, N = 0.99, 0.95, 3

# r_t, v_tm1, v_t, rho_tm1, terminated_t, truncated_t: arrays of NumPy or of torch.
Steps = tuple[Any, Any, Any, Any, Any, Any]
Results = tuple[Any, ...]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", type=Path, help="the page to write")
    chosen = options.parse_args()
    if torch is not None:
        torch.set_num_threads(1)
    rows = []
    for name in KERNELS:
        for length, width in SHAPES:
            ways = ways_of(name, drawn(length, width))
            times = interleaved(ways)
            cells = [text(times[way] / 1e3) if way in times else "not installed" for way in WAYS]
            ratios = [
                text(times[way] / times["hotloop"]) if way in times else "" for way in WAYS[1:]
            ]
            rows.append([f"`{name}`", f"{length} x {width}", *cells, *ratios])
    versions = f"NumPy {np.__version__}" + (f", torch {torch.__version__}" if torch else "")
    parts = [
        "Microseconds of processor time a call, checks of the arguments included: median over "
        f"{ROUNDS} rounds in which the ways take turns, with its 95% interval; float32, one "
        f"thread, {versions}. The "
        "ratio is the time of the other over that of hotloop in the same round. hotloop sums in "
        "double precision, the others in single. "
        f"γ = {GAMMA}, λ = {LAMBDA}, n = {N}; one step in fifty ends an episode.",
        table(
            ["function", "T x B", *(f"{way}, µs" for way in WAYS), "NumPy / hotloop",
             "torch / hotloop"],
            rows,
        ),
    ]  # fmt: skip
    write_page(chosen.write, "The mathematics of the learners", parts, "benchmarks/ops.py")


# --- the same formulas for NumPy and torch ---------------------------------------------------


def gae(xp: ModuleType, steps: Steps) -> Results:
    r_t, v_tm1, v_t, _, terminated_t, truncated_t = steps
    delta = r_t + GAMMA * v_t * ~terminated_t - v_tm1
    trace = GAMMA * LAMBDA * ~(terminated_t | truncated_t)
    advantage, following = xp.empty_like(r_t), 0.0
    for t in reversed(range(len(r_t))):
        following = delta[t] + trace[t] * following
        advantage[t] = following
    return advantage, advantage + v_tm1


def lambda_returns(xp: ModuleType, steps: Steps) -> Results:
    r_t, _, v_t, _, terminated_t, truncated_t = steps
    discount = GAMMA * ~terminated_t
    weight = LAMBDA * ~truncated_t
    return_, following = xp.empty_like(r_t), v_t[-1]
    for t in reversed(range(len(r_t))):
        following = r_t[t] + discount[t] * ((1 - weight[t]) * v_t[t] + weight[t] * following)
        return_[t] = following
    return (return_,)


def n_step_windows(xp: ModuleType, steps: Steps) -> Results:
    r_t, _, _, _, terminated_t, truncated_t = steps
    ends = terminated_t | truncated_t
    reward, count = r_t * 1.0, xp.ones(r_t.shape, dtype=xp.int64)
    discount = xp.ones_like(r_t) * GAMMA * ~terminated_t
    goes_on = ~ends
    for k in range(1, min(N, len(r_t))):
        goes_on = goes_on[: len(r_t) - k]
        early = slice(len(r_t) - k)
        reward[early] += GAMMA**k * goes_on * r_t[k:]
        longer = GAMMA ** (k + 1) * ~terminated_t[k:]
        discount[early] = xp.where(goes_on, longer, discount[early])
        count[early] += goes_on
        goes_on = goes_on & ~ends[k:]
    return reward, discount, count


def n_step_returns(xp: ModuleType, steps: Steps) -> Results:
    v_t = steps[2]
    return_, discount, count = n_step_windows(xp, steps)
    for k in range(min(N, len(v_t))):
        early = slice(len(v_t) - k)
        return_[early] += (count[early] == k + 1) * discount[early] * v_t[k:]
    return (return_,)


def vtrace(xp: ModuleType, steps: Steps) -> Results:
    r_t, v_tm1, v_t, rho_tm1, terminated_t, truncated_t = steps
    error = r_t + GAMMA * v_t * ~terminated_t - v_tm1
    clipped = rho_tm1.clip(max=1.0)
    trace = GAMMA * LAMBDA * clipped * ~(terminated_t | truncated_t)
    delta = clipped * error
    correction, following = xp.empty_like(r_t), 0.0
    for t in reversed(range(len(r_t))):
        following = delta[t] + trace[t] * following
        correction[t] = following
    advantage = delta * 1.0
    advantage[:-1] += trace[:-1] * correction[1:]
    return v_tm1 + correction, advantage


# --- measuring -----------------------------------------------------------------------------------

WAYS = ("hotloop", "NumPy", "torch")

# By name, hotloop's function over steps, and the plain one above.
KERNELS: dict[str, tuple[Callable[..., Any], Callable[[ModuleType, Steps], Results]]] = {
    "gae": (
        lambda r, v0, v, _, *ends: ops.gae(r, v0, v, *ends, gamma=GAMMA, lambda_=LAMBDA),
        gae,
    ),
    "lambda_returns": (
        lambda r, _v0, v, _, *ends: (ops.lambda_returns(r, v, *ends, gamma=GAMMA, lambda_=LAMBDA),),
        lambda_returns,
    ),
    "n_step_windows": (
        lambda r, _v0, _v, _, *ends: ops.n_step_windows(r, *ends, gamma=GAMMA, n=N),
        n_step_windows,
    ),
    "n_step_returns": (
        lambda r, _v0, v, _, *ends: (ops.n_step_returns(r, v, *ends, gamma=GAMMA, n=N),),
        n_step_returns,
    ),
    "vtrace": (
        lambda *steps: ops.vtrace(*steps, gamma=GAMMA, lambda_=LAMBDA),
        vtrace,
    ),
}


def drawn(length: int, width: int) -> Steps:
    """Steps at random, whose v_t is v_tm1 one step later within an episode."""
    rng = np.random.default_rng(0)
    r_t, v_tm1, v_t = rng.normal(size=(3, length, width)).astype(np.float32)
    rho_tm1 = np.exp(rng.normal(size=(length, width))).astype(np.float32)
    terminated_t, truncated_t = rng.random((2, length, width)) < 0.01
    v_t[:-1] = np.where((terminated_t | truncated_t)[:-1], v_t[:-1], v_tm1[1:])
    return r_t, v_tm1, v_t, rho_tm1, terminated_t, truncated_t


def ways_of(name: str, steps: Steps) -> dict[str, Callable[[], Results]]:
    """The ways to compute it over the same steps, by name; they agree, or it raises."""
    kernel, plain = KERNELS[name]
    ways: dict[str, Callable[[], Results]] = {
        "hotloop": lambda: kernel(*steps),
        "NumPy": lambda: plain(np, steps),
    }
    if torch is not None:
        tensors = tuple(torch.from_numpy(array) for array in steps)
        ways["torch"] = lambda: plain(torch, tensors)
    expected = ways["hotloop"]()
    for way, compute in ways.items():
        for mine, other in zip(compute(), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3, err_msg=f"{name}, {way}")
    return ways


def interleaved(ways: dict[str, Callable[[], Results]]) -> dict[str, np.ndarray]:
    """Nanoseconds a call in each round, (ROUNDS,), by way."""
    rng, names = np.random.default_rng(0), list(ways)
    calls = {way: max(1, TURN_NS // (turn(compute, 3) // 3)) for way, compute in ways.items()}
    times = {way: np.empty(ROUNDS) for way in ways}
    for k in range(ROUNDS):
        for way in rng.permutation(names).tolist():
            times[way][k] = turn(ways[way], calls[way]) / calls[way]
    return times


def turn(compute: Callable[[], Results], calls: int) -> int:
    # Processor time: beside busy processes, a long call is interrupted more often than a short one.
    start = thread_time_ns()
    for _ in range(calls):
        compute()
    return thread_time_ns() - start


def text(values: np.ndarray) -> str:
    """The median over rounds with its interval."""
    picked = np.random.default_rng(0).integers(0, len(values), (2_000, len(values)))
    of = percentile_interval(float(smooth_median(values)), smooth_median(values[picked]))
    return f"{of.value:.1f} [{of.low:.1f}, {of.high:.1f}]"


if __name__ == "__main__":
    main()
