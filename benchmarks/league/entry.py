"""What the league knows of a loop, and what a loop is given: its fixes and its random numbers.

Every loop is made from the same three things, so that a prediction, the old version and the new
version of a truth differ in nothing else.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hotloop.loop import Loop
from hotloop.loop.values import independent_copy

Kind = Literal["steady", "memory", "rare", "concurrent", "loader", "engine", "library"]


class Fixes(dict[str, float]):
    """How much of a stage's work is left: 1 as it was, 0.5 half of it, 0 a ready output."""

    def __missing__(self, stage: str) -> float:
        return 1.0

    def count(self, stage: str, whole: int) -> int:
        """So many of `whole` equal pieces of work are left. Raises: ValueError for a fraction."""
        left = whole * self[stage]
        if left != int(left):
            raise ValueError(f"{stage}: {self[stage]:g} of {whole} pieces of work is no whole one")
        return int(left)


class Draws:
    """Numbers between 0 and 1 from a seed.

    stratum: 0 for independent numbers. Otherwise every `stratum` numbers in a row hold one of each
    of as many equal parts of the range, in random order: what happens once in twenty draws then
    happens equally often in each such row, and a mean over it has hardly any error of chance.
    """

    def __init__(self, seed: int, stratum: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._stratum = stratum
        self._ready: list[float] = []

    def __call__(self) -> float:
        if not self._ready:
            self._ready = self._more()
        return self._ready.pop()

    def seed(self) -> int:
        """A seed for a generator of a loop's own."""
        return int(self._rng.integers(2**31))

    def _more(self) -> list[float]:
        if not self._stratum:
            return self._rng.random(1024).tolist()  # type: ignore[no-any-return]
        parts = self._rng.permutation(self._stratum) + self._rng.random(self._stratum)
        return (parts / self._stratum).tolist()  # type: ignore[no-any-return]


Maker = Callable[[Fixes, Draws], AbstractContextManager[Loop]]


@dataclass(frozen=True)
class Entry:
    """A loop of the league.

    fixes: which stage is fixed, and how much of its work is then left.
    period: after so many iterations the rare work has come round. Blocks of a truth are whole
    periods, and so are the strata of its `Draws`; 1 where draws must be independent.
    drain: iterations that are not timed after a switch.
    every: iterations between two rare events, on average; 0 where there are none.
    rare_s: seconds that a rare event takes longer than an ordinary call.
    needs: modules that are imported before the versions of a truth are made; compiles: whether the
    loop is made once before them, so that what it compiles is compiled once.
    slow: how much longer than usual a truth is measured.
    in_phases: what runs side by side is waited for before anything else begins.
    """

    make: Maker
    kind: Kind
    fixes: tuple[tuple[str, float], ...]
    period: int = 1
    drain: int = 0
    every: float = 0.0
    rare_s: float = 0.0
    needs: tuple[str, ...] = ()
    compiles: bool = False
    slow: float = 1.0
    in_phases: bool = False

    @property
    def in_sequence(self) -> bool:
        """Whether the loop does one thing after the other, and nothing rare.

        Where it compiles, its stages belong to the process in which it was made first.
        """
        steady = self.kind in ("steady", "memory", "engine", "library")
        return self.in_phases or (steady and not self.compiles)


def python_work(pieces: int) -> int:
    """Compute in Python, holding the interpreter lock: about 0.1 ms a piece."""
    x = 1
    for _ in range(pieces * 750):
        x = (x * 69_069 + 1) & 0xFFFFFFFF
    return x


def burn(seconds: float) -> None:
    """Keep the processor busy until so much time has passed."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def cycle(ready: list[Any]) -> Callable[..., Any]:
    """A function that returns ready outputs in turn, whatever it is given."""
    at = -1

    def again(*_args: Any, **_kwargs: Any) -> Any:
        nonlocal at
        at = at + 1 if at + 1 < len(ready) else 0
        return ready[at]

    return again


def table_of(*tables: Mapping[str, Entry]) -> Iterator[tuple[str, Entry]]:
    """The entries of several tables. Raises: ValueError for a name that stands in two."""
    seen: set[str] = set()
    for table in tables:
        for name, entry in table.items():
            if name in seen:
                raise ValueError(f"two loops of the league are called {name!r}; rename one")
            seen.add(name)
            yield name, entry


class Prepared:
    """A function whose outputs are kept at first, then given again in turn instead of calling it.

    With `count` 0 it is the function itself.
    """

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self._function, self._count = function, count
        self._kept: list[Any] = []
        self._again: Callable[..., Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing more is really called, or everything ever will be."""
        return self._again is not None or not self._count

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._again is not None:
            return self._again()
        output = self._function(*args, **kwargs)
        if self._count:
            self._kept.append(independent_copy(output))
            if len(self._kept) == self._count:
                self._again = cycle(self._kept)
        return output
