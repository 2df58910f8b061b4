"""Numbers as text: the same digits, units and intervals in every report."""

import math
from dataclasses import dataclass, replace

from hotloop.loop.figures import Figure, Interval, Unknown


@dataclass(frozen=True)
class Form:
    """A way to write numbers: the units to choose from, and the factor to apply before."""

    steps: tuple[tuple[float, str], ...]  # (size of a unit, its suffix), the largest first
    factor: float = 1.0
    decimals: int | None = None  # fixed, or as many as make three digits
    least: float = 0.0  # of smaller ones only that they are smaller is written

    def __call__(self, value: float) -> str:
        """The number with its unit: 12.3k."""
        if not math.isfinite(value):
            return "?"
        if 0 <= value < self.least:
            return f"< {self.least:g}"
        size, suffix = self._unit(value)
        return f"{self._digits(value * self.factor / size)}{suffix}"

    def scaled(self, factor: float) -> "Form":
        """The same form for numbers that are given in another unit."""
        return replace(self, factor=self.factor * factor)

    def interval(self, of: Interval) -> str:
        """A value with its interval, in one unit, with enough digits to show its width.

        Where that unit leaves the value at most one digit, and the lower end none, each has its
        own.
        """
        size, suffix = self._unit(max(abs(of.low), abs(of.high)))
        scale = self.factor / size
        if not math.isfinite(of.value):
            return "?"
        if not (math.isfinite(of.low) and math.isfinite(of.high)):
            return f"{self(of.value)} (too few samples for an interval)"
        decimals = self.decimals
        if decimals is None:  # two digits of the width, but no more than four of the number
            width = (of.high - of.low) * scale
            shown = max(abs(of.low), abs(of.high)) * scale
            decimals = max(0, min(1 - _magnitude(width) if width > 0 else 2, 3 - _magnitude(shown)))
            lost = any(x and not round(x * scale, decimals) for x in (of.value, of.low))
            if lost and of.value and abs(of.value) * scale < 10 ** (1 - decimals):
                return f"{self(of.value)} [{self(of.low)}, {self(of.high)}]"
        value, low, high = (f"{x * scale:.{decimals}f}" for x in (of.value, of.low, of.high))
        return f"{_no_minus(value)}{suffix} [{_no_minus(low)}, {_no_minus(high)}]"

    def _unit(self, value: float) -> tuple[float, str]:
        for size, suffix in self.steps:
            if abs(value) * self.factor >= size:
                return size, suffix
        return self.steps[-1]

    def _digits(self, value: float) -> str:
        decimals = self.decimals
        if decimals is None:
            decimals = max(0, 2 - _magnitude(value)) if value else 0
            text = f"{value:.{decimals}f}"
            return _no_minus(text.rstrip("0").rstrip(".") if "." in text else text)
        return _no_minus(f"{value:.{decimals}f}")


number = Form(((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")))
duration = Form(((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")))
seconds = duration.scaled(1e9)
percent = Form(((1.0, "%"),), factor=100.0, decimals=1)
factor = Form(((1.0, "×"),))
probability = Form(((1.0, ""),), least=0.001)
bytes_ = Form(((2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB"), (1.0, " B")))


def interval(of: Interval, form: Form = number) -> str:
    """A value with its interval: 12.31k [12.12, 12.54]."""
    return form.interval(of)


def measured(of: Interval, form: Form = number) -> str:
    """A value with its interval, or alone where the interval has no width."""
    return form(of.value) if of.low >= of.high else form.interval(of)


def rate(units: float, ns: Interval) -> str:
    """Units per second of an iteration with `units` that takes `ns`."""
    if ns.value <= 0:
        return "no limit"
    if ns.low <= 0:
        return f"{number(units / ns.value * 1e9)} [{number(units / ns.high * 1e9)}, no limit]"
    return measured(Interval(units / ns.value, units / ns.high, units / ns.low).scaled(1e9))


def times(now: Interval, then: Interval, ends: bool = True) -> str:
    """How many times faster `then`, a rung below `now`, is; the ends are worst and best case."""
    if then.value <= 0:
        return "no limit"
    if not ends:
        return factor(now.value / then.value)
    least = max(1.0, now.low / then.high)  # no rung lies above the one before it
    if then.low <= 0:
        return f"{factor(now.value / then.value)} [{factor(least)}, no limit]"
    return measured(Interval(now.value / then.value, least, now.high / then.low), factor)


def figure(of: Figure, form: Form = number, why: bool = True) -> str:
    """Any figure; an unknown one says so, with the reason."""
    if isinstance(of, Unknown):
        return f"unknown: {of.why}" if why else "unknown"
    return measured(of, form) if isinstance(of, Interval) else form(of)


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _no_minus(text: str) -> str:
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def a_or_an(word: str) -> str:
    """The article before a word: "a day", "an hour", "an iteration"."""
    return "an" if word.startswith(("a", "e", "i", "o", "hour")) else "a"
