"""Planted fragments for the learners' kernels, and the runs of steps that they consist of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hotloop.ops import gae, lambda_returns, n_step_returns, n_step_windows, vtrace

Array = np.ndarray


@dataclass(frozen=True)
class Steps:
    """What kernels read, each (T, B). Within a run, v_t is v_tm1 of the next step."""

    r_t: Array
    v_tm1: Array
    v_t: Array
    rho_tm1: Array
    terminated_t: Array
    truncated_t: Array
    valid_t: Array

    def each(self, change: Callable[[Array], Array]) -> "Steps":
        """The same change to every array."""
        return Steps(*(change(getattr(self, f.name)) for f in fields(self)))

    def floats(self, change: Callable[[Array], Array]) -> "Steps":
        """The same change to every array of numbers."""
        return self.each(lambda a: a if a.dtype == np.bool_ else change(a))

    def on_policy(self) -> "Steps":
        return replace(self, rho_tm1=np.ones_like(self.rho_tm1))


# Every kernel over the same steps and settings, as a tuple of arrays (T, B).
KERNELS: dict[str, Callable[..., tuple[Array, ...]]] = {
    "gae": lambda s, gamma=0.9, lambda_=0.8, **_: gae(
        s.r_t,
        s.v_tm1,
        s.v_t,
        s.terminated_t,
        s.truncated_t,
        gamma=gamma,
        lambda_=lambda_,
        valid_t=s.valid_t,
    ),
    "lambda_returns": lambda s, gamma=0.9, lambda_=0.8, **_: (
        lambda_returns(
            s.r_t,
            s.v_t,
            s.terminated_t,
            s.truncated_t,
            gamma=gamma,
            lambda_=lambda_,
            valid_t=s.valid_t,
        ),
    ),
    "n_step_returns": lambda s, gamma=0.9, n=3, **_: (
        n_step_returns(
            s.r_t, s.v_t, s.terminated_t, s.truncated_t, gamma=gamma, n=n, valid_t=s.valid_t
        ),
    ),
    "n_step_windows": lambda s, gamma=0.9, n=3, **_: n_step_windows(
        s.r_t, s.terminated_t, s.truncated_t, gamma=gamma, n=n, valid_t=s.valid_t
    ),
    "vtrace": lambda s, gamma=0.9, lambda_=0.8, clip_rho=1.5, clip_pg_rho=2.0, **_: vtrace(
        s.r_t,
        s.v_tm1,
        s.v_t,
        s.rho_tm1,
        s.terminated_t,
        s.truncated_t,
        gamma=gamma,
        lambda_=lambda_,
        clip_rho=clip_rho,
        clip_pg_rho=clip_pg_rho,
        valid_t=s.valid_t,
    ),
}


def drawn_steps(
    length: int = 12, width: int = 3, *, seed: int = 0, ends: float = 0.2, invalid: float = 0.0
) -> Steps:
    """Steps at random; ends, invalid: the shares of both kinds of ends, and of steps not valid."""
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, length, width)) < ends / 2
    valid = rng.random((length, width)) >= invalid
    r_t, v_tm1, v_t = rng.normal(size=(3, length, width))
    rho = np.exp(rng.normal(size=(length, width)))
    return joined(Steps(r_t, v_tm1, v_t, rho, terminated, truncated, valid))


def joined(steps: Steps) -> Steps:
    """The same with v_t taken from the next step wherever a run goes on."""
    v_t = steps.v_t.copy()
    for b, start, stop in runs(steps):
        v_t[start : stop - 1, b] = steps.v_tm1[start + 1 : stop, b]
    return replace(steps, v_t=v_t)


@st.composite
def some_steps(draw: Any, valid: bool = False) -> Steps:
    """Steps of hypothesis: any shape and flags. valid: whether all of them are."""
    shape = (draw(st.integers(1, 7)), draw(st.integers(1, 4)))
    floats = st.floats(-100, 100, width=32)
    numbers = [draw(arrays(np.float64, shape, elements=floats)) for _ in range(3)]
    rho = draw(arrays(np.float64, shape, elements=st.floats(0, 20, width=32)))
    flags = [draw(arrays(np.bool_, shape)) for _ in range(2)]
    all_valid = np.ones(shape, np.bool_)
    return joined(Steps(*numbers, rho, *flags, all_valid if valid else draw(arrays(bool, shape))))


def runs(steps: Steps) -> Iterator[tuple[int, int, int]]:
    """(b, start, stop) of the longest stretches of valid steps without an end before the last."""
    ends = steps.terminated_t | steps.truncated_t
    length, width = ends.shape
    for b in range(width):
        start = 0
        for t in range(length):
            if not steps.valid_t[t, b]:
                start = t + 1
            elif ends[t, b] or t == length - 1 or not steps.valid_t[t + 1, b]:
                yield b, start, t + 1
                start = t + 1


def by_run(steps: Steps, of_run: Callable[..., list[list[float]]], fills: list[Any]) -> list[Array]:
    """Results of a plain function of one run's lists, put together; fills: where not valid.

    of_run takes r_t, v_tm1, v_t and rho_tm1 of the run; v_t is 0 where it terminates.
    """
    results = [np.array(np.broadcast_to(fill, steps.r_t.shape), np.float64) for fill in fills]
    for b, start, stop in runs(steps):
        v_t = steps.v_t[start:stop, b].copy()
        if steps.terminated_t[stop - 1, b]:
            v_t[-1] = 0.0
        parts = (steps.r_t[start:stop, b], steps.v_tm1[start:stop, b], v_t)
        columns = of_run(*(p.tolist() for p in parts), steps.rho_tm1[start:stop, b].tolist())
        for result, column in zip(results, columns, strict=True):
            result[start:stop, b] = column
    return results
