"""From blocks to effects: ratios of mean times, with intervals from leaving out rounds.

Gains are of throughput, units over seconds, so every time here is a sum of seconds over a sum of
units: rare long iterations count with all their weight. One round is a randomised complete block,
in which every arm ran once. Two things besides the arms make blocks differ, and are corrected for
where that helps: time that other programs took from the loop, and how often the loop's own rare
work happened to fall into a block, which is better estimated from all arms than from one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hotloop.loop.cost import ERROR_SHARE
from hotloop.loop.figures import CONFIDENCE, Interval, jackknife_error, student_quantile
from hotloop.simplify.means import Means
from hotloop.simplify.rare_work import comes_alike, takes_alike

MIN_ROUNDS = 6
# A t-quantile with fewer degrees of freedom than this is too wide to decide anything.
LEAST_DEGREES = 2
# With fewer rare events than this their own spread is not known well enough from the rounds.
FEW_EVENTS = 30
# Rare work below this share of the time is treated as noise.
RARE_SHARE = 0.003


@dataclass
class Samples:
    """The measured blocks as tables of rounds and arms.

    ns: (R, A) time of a block, NaN where the arm did not run; units: (R, A) what it did.
    stolen_ns: (R, A) time that other programs took from the loop.
    probe_ns: (R, A) time that measuring the stages' calls took; it is subtracted where the loop
    is serial. probe_error: its relative error.
    rare_ns: (R, A, K) of each kind of work, the part that varies with what fell into the block
    (see `hotloop.simplify.rare_work`); rare_events: (R, A, K) how many such events it was.
    recorded_ns: (K,) the same for an iteration of the recording; 0 where it is not known.
    real: (A, K) whether that kind of work really ran in an arm.
    stage_ns: (R, A, S) time of each stage's calls, as they were in that arm.
    cpu_ns: (R, A) processor time of all threads of this process.
    same: names of the arms in which nothing is changed; the first is the baseline.
    serial: whether a nanosecond of any work is a nanosecond of the loop; otherwise the part that
    the loop feels is estimated.
    """

    ns: np.ndarray
    units: np.ndarray
    arms: list[str]
    same: list[str]
    stolen_ns: np.ndarray | None = None
    probe_ns: np.ndarray | None = None
    probe_error: float = ERROR_SHARE
    rare_ns: np.ndarray | None = None
    rare_events: np.ndarray | None = None
    real: np.ndarray | None = None
    recorded_ns: np.ndarray | None = None
    stage_ns: np.ndarray | None = None
    cpu_ns: np.ndarray | None = None
    serial: bool = True
    seed: int = 0
    _means: dict[tuple[str, ...], Means] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._ran = np.isfinite(self.ns)
        self._whole = np.where(self._ran, self.ns, 0.0)
        probe = 0.0 if self.probe_ns is None or not self.serial else np.nan_to_num(self.probe_ns)
        self._y = np.maximum(self._whole - probe, 0.0)
        self._u = np.where(self._ran, self.units, 0.0)
        shape = self.ns.shape
        none = np.zeros(shape)
        self._stolen = none if self.stolen_ns is None else np.where(self._ran, self.stolen_ns, 0.0)
        if self.rare_ns is None or self.real is None:
            self._rare = self._events = np.zeros((*shape, 0))
            self._real = np.zeros((shape[1], 0), bool)
        else:
            ran = self._ran[:, :, None] & self.real[None]
            self._rare = np.where(ran, self.rare_ns, 0.0)
            events = np.zeros_like(self._rare) if self.rare_events is None else self.rare_events
            self._events = np.where(ran, events, 0.0)
            self._real = self.real

    # --- which rounds --------------------------------------------------------------------------

    def rounds(self, arms: Sequence[str]) -> np.ndarray:
        """Return the numbers of the rounds in which all of these arms ran."""
        columns = [self.arms.index(arm) for arm in arms]
        rounds: np.ndarray = np.flatnonzero(self._ran[:, columns].all(axis=1))
        return rounds

    def has(self, *arms: str) -> bool:
        """Whether all of these arms ran together in enough rounds for an interval."""
        return all(arm in self.arms for arm in arms) and len(self.rounds(arms)) >= MIN_ROUNDS

    def means(self, arms: Sequence[str]) -> Means:
        """Return the mean times of these arms over their common rounds, with joint draws.

        The baseline stands for all arms in which nothing is changed.
        """
        key = tuple(arms)
        if key not in self._means:
            self._means[key] = self._best(arms)
        return self._means[key]

    def same_gain(self, arm: str, confidence: float = CONFIDENCE) -> Interval:
        """Compare an arm in which nothing is changed with the others of its kind."""
        others = [name for name in self.same if name != arm and name in self.arms]
        groups = [[self.arms.index(arm)], [self.arms.index(name) for name in others]]
        rounds = self.rounds([arm, *others])
        found = self._adjusted([arm, "the others"], groups, rounds, *self._choice)
        return found.gain(arm, "the others", confidence)

    def raw_time(self, arm: str) -> Interval:
        """Return the mean time of a unit, including what measuring took.

        How often rare work comes is estimated from all arms here too.
        """
        groups, rounds = [self._columns(arm)], self.rounds([arm])
        return self._adjusted([arm], groups, rounds, False, self._choice[1], whole=True).time(arm)

    def if_faster(self, free: str, slowed: str, own: np.ndarray, factor: float) -> Interval:
        """Return the gain if a stage took 1/`factor` of its time, by an arm with about that time.

        T = T(free) + (T(slowed) − T(free)) · (s − s(free))/factor / (s(slowed) − s(free)), where s
        is the time of the stage in an iteration: in the baseline, and as measured in either arm.
        So recorded durations need not equal those of the baseline, and their error is part of the
        interval. own: (R, A) the quantity of each block whose mean is s, in ns.
        """
        base = self.same[0]
        arms = [base, free, slowed]
        rounds = self.rounds(arms)
        # What the stage takes contains what was stolen during it, so the loop's time must too.
        groups = [self._columns(arm) for arm in arms]
        times = self._adjusted(arms, groups, rounds, False, self._choice[1])
        (took, tooks), (none, nones), (less, lesses) = (
            self._mean_of(own, columns, rounds) for columns in groups
        )

        def gain(t: np.ndarray, s: Any, s_free: Any, s_slowed: Any) -> np.ndarray:
            reach = (s - s_free) / factor / np.maximum(s_slowed - s_free, 1e-9)
            felt = np.maximum(t[..., 2] - t[..., 1], 0)
            time = t[..., 1] + felt * np.clip(reach, 0, 2)
            saved: np.ndarray = 1 - time / t[..., 0]
            return saved

        value = float(gain(times.values, took, none, less))
        error = jackknife_error(gain(times.replicates, tooks, nones, lesses))
        return times.around(value, error, CONFIDENCE)

    def if_replayed(self, free: str, slowed: str, own: np.ndarray) -> Interval:
        """Return the gain of an arm that replays durations scaled to the baseline's mean.

        The error of that mean is part of the interval. own: as in `if_faster`.
        """
        base = self.same[0]
        means = self.means([base, free, slowed])
        gain = means.gain(slowed, base)
        took, tooks = self._mean_of(own, self._columns(base), self.rounds([base]))
        relative = jackknife_error(tooks) / max(took, 1e-9)
        felt = means.gain(free, base).value - gain.value
        reach = (
            student_quantile(1 - (1 - CONFIDENCE) / 2, means.degrees) * relative * max(felt, 0.0)
        )
        half = math.hypot(gain.half_width, reach)
        return Interval(gain.value, gain.value - half, gain.value + half)

    def mean_of(self, own: np.ndarray, arm: str) -> float:
        """Return the mean of `own` (R, A) in a unit of this arm."""
        return self._mean_of(own, self._columns(arm), self.rounds([arm]))[0]

    def _mean_of(
        self, own: np.ndarray, columns: list[int], rounds: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """The mean of `own` in a unit of these arms, and the same without each round."""
        inside = np.zeros(len(self.ns), bool)
        inside[rounds] = True
        ran = np.where(self._ran, own, 0.0)
        spent = np.where(inside, ran[:, columns].sum(axis=1), 0.0)
        units = np.where(inside, self._u[:, columns].sum(axis=1), 0.0)
        value, left = _left_out_ratio(spent[:, None], units[:, None])
        return float(value[0]), left[:, 0]

    # --- corrections -----------------------------------------------------------------------------

    @cached_property
    def _choice(self) -> tuple[bool, bool]:
        """Whether to correct for stolen time, and for rare work: what leaves the least spread."""
        options = [(False, False)]
        if not self.same or not self.has(self.same[0]):
            return options[0]
        if self._stolen.any():
            options.append((True, False))
        if self._rare_matters:
            options += [(stolen, True) for stolen in {stolen for stolen, _ in options}]
        return min(sorted(options), key=lambda option: self._spread(*option))

    @cached_property
    def _rare_matters(self) -> bool:
        large = self._rare.sum(axis=(0, 1)) > RARE_SHARE * float(self._y.sum())
        return bool((large & self._alike).any())

    def _spread(self, stolen: bool, rare: bool) -> float:
        """The typical error of an arm's time against the baseline's, for comparing options."""
        base = self.same[0]
        errors = []
        for arm in self.arms:
            if arm in self.same or not self.has(arm, base):
                continue
            groups = [self._columns(arm), self._columns(base)]
            found = self._adjusted([arm, base], groups, self.rounds([arm, base]), stolen, rare)
            errors.append(math.log(max(jackknife_error(found.log_ratio(arm, base)), 1e-9)))
        if not errors:
            found = self._adjusted([base], [self._columns(base)], self.rounds([base]), stolen, rare)
            return found.time(base).half_width
        return float(np.mean(errors))

    def _best(self, arms: Sequence[str]) -> Means:
        groups = [self._columns(arm) for arm in arms]
        return self._adjusted(list(arms), groups, self.rounds(arms), *self._choice)

    def _columns(self, arm: str) -> list[int]:
        if arm == self.same[0]:
            return [self.arms.index(name) for name in self.same if name in self.arms]
        return [self.arms.index(arm)]

    def _adjusted(
        self,
        names: list[str],
        groups: list[list[int]],
        rounds: np.ndarray,
        stolen: bool,
        rare: bool,
        whole: bool = False,
    ) -> Means:
        """Mean times of groups of arms, and the same with each round left out.

        stolen, rare: the corrections to make; whole: whether to keep what measuring took.
        """
        inside = np.zeros(len(self.ns), bool)
        inside[rounds] = True
        y = self._less_stolen if stolen else self._whole if whole else self._y
        felt = self._felt(stolen) if rare else np.zeros(self._rare.shape[2])
        kept = np.flatnonzero(felt)
        rate, rates = self._rare_rates(kept)
        values, replicates = [], []
        for group in groups:
            ys = np.where(inside, y[:, group].sum(axis=1), 0.0)
            us = np.where(inside, self._u[:, group].sum(axis=1), 0.0)
            total_y, total_u = ys.sum(), us.sum()
            left_y, left_u = total_y - ys, np.maximum(total_u - us, 1e-300)
            value, left = total_y / max(total_u, 1e-300), left_y / left_u
            for column, k in enumerate(kept):
                real = [a for a in group if self._real[a, k]]
                if not real:
                    continue
                es = np.where(inside, self._rare[:, real, k].sum(axis=1), 0.0)
                ru = np.where(inside, self._u[:, real].sum(axis=1), 0.0)
                weight = ru.sum() / max(total_u, 1e-300)
                own, owns = _left_out_ratio(es[:, None], ru[:, None])
                value -= felt[k] * weight * float(own[0] - rate[column])
                left = left - felt[k] * weight * (owns[:, 0] - rates[:, column])
            values.append(float(value))
            replicates.append(left)
        # A round in which an arm did not run still counts for how often rare work comes.
        common = [self._counting(groups, values)]
        if not whole:
            common.append(self._probing(groups, inside))
        return Means(
            names,
            np.array(values),
            np.stack(replicates, axis=1),
            degrees=max(len(rounds) - 1, LEAST_DEGREES),
            common=np.stack(common),
            seed=self.seed,
        )

    def _rare_rates(self, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rare time of a unit, over the arms in which it runs: (K,), without each round (R, K)."""
        spent = self._rare[:, :, kinds].sum(axis=1)
        units = np.zeros((len(self.ns), len(kinds)))
        for column, k in enumerate(kinds):
            units[:, column] = (self._u * self._real[:, k]).sum(axis=1)
        return _left_out_ratio(spent, units)

    def _felt(self, stolen: bool) -> np.ndarray:
        """The share of each kind of rare work that adds to the loop's time: (K,), 0 to 1."""
        count = self._rare.shape[2]
        total = float(self._y.sum())
        share = self._rare.sum(axis=(0, 1)) / max(total, 1e-300)
        large = (share > RARE_SHARE) & self._alike
        if self.serial or not large.any():
            everything: np.ndarray = large.astype(float)
            return everything
        felt = np.zeros(count)
        y = self._less_stolen if stolen else self._y
        felt[large] = self._slopes(y, self._rare[:, :, large])
        return felt

    @cached_property
    def _alike(self) -> np.ndarray:
        """Whether each kind of rare work comes as often, and takes as long, in every arm: (K,)."""
        units = np.where(self._real, self._u[:, :, None], 0.0)
        alike: np.ndarray = comes_alike(self._events, units) & takes_alike(self._rare, units)
        return alike

    @cached_property
    def _less_stolen(self) -> np.ndarray:
        """Times of blocks without what other programs took, as far as it added to the loop's time.

        It does not add to work that ends at a time of the clock; it adds to work that computes.
        """
        felt = float(self._slopes(self._y, self._stolen[:, :, None])[0])
        less: np.ndarray = self._y - felt * self._stolen
        return less

    def _slopes(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The slope of `y` (R, A) on each covariate (R, A, K), within arms: (K,), 0 to 1."""
        rows_x, rows_y = [], []
        for a in range(len(self.arms)):
            ran = self._ran[:, a] & (self._u[:, a] > 0)
            if ran.sum() < MIN_ROUNDS:
                continue
            of_x = x[ran, a] / self._u[ran, a, None]
            of_y = y[ran, a] / self._u[ran, a]
            rows_x.append(of_x - of_x.mean(axis=0))
            rows_y.append(of_y - of_y.mean())
        if not rows_x:
            return np.zeros(x.shape[2])
        solved = np.linalg.lstsq(np.concatenate(rows_x), np.concatenate(rows_y), rcond=None)[0]
        slopes: np.ndarray = np.clip(solved, 0, 1)
        return slopes

    def _counting(self, groups: list[list[int]], values: list[float]) -> np.ndarray:
        """The least error (arms,) with few rare events, whatever the spread of the rounds."""
        found = np.zeros(len(groups))
        total_u = float(self._u.sum())
        recorded = np.zeros(self._rare.shape[2]) if self.recorded_ns is None else self.recorded_ns
        for k in range(self._rare.shape[2]):
            events = float(self._events[:, :, k].sum())
            seen_u = float((self._u * self._real[:, k]).sum())
            if not events < FEW_EVENTS or not seen_u or not total_u:
                continue
            # Where no event came, the error is what the recording had.
            per_unit = float(self._rare[:, :, k].sum()) / seen_u if events else float(recorded[k])
            events = max(events, 1.0)
            for g, group in enumerate(groups):
                if per_unit > RARE_SHARE * values[g] and any(self._real[a, k] for a in group):
                    found[g] += per_unit**2 / events
        return np.sqrt(found)

    def _probing(self, groups: list[list[int]], inside: np.ndarray) -> np.ndarray:
        """The error (arms,) of the subtracted cost of measuring the calls."""
        left_out = np.where(inside[:, None], self._whole - self._y, 0.0)
        units = np.where(inside[:, None], self._u, 0.0)
        return np.array(
            [
                self.probe_error * left_out[:, group].sum() / max(units[:, group].sum(), 1e-300)
                for group in groups
            ]
        )


def _left_out_ratio(over: np.ndarray, under: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of sums over rounds (R, K): all rounds (K,), and without each of them (R, K)."""
    total, total_under = over.sum(axis=0), under.sum(axis=0)
    safe = np.where(total_under > 0, total_under, 1.0)
    left = total_under - under
    without = np.where(left > 0, (total - over) / np.where(left > 0, left, 1.0), total / safe)
    return total / safe, without
