"""Normalisation of advantages, and running moments for observations and values."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import ShapeError, expect_positive
from hotloop.ops.arguments import Flags, Floats, above_0

Doubles = NDArray[np.float64]
Numbers = NDArray[np.number[Any]]

EPSILON = 1e-8


class Moments(NamedTuple):
    """Mean and variance of everything seen so far, for each number of an observation or value."""

    count: int  # type: ignore[assignment]  # hides the method `count` of tuples
    """Samples seen."""
    mean: Doubles
    """The shape of one sample."""
    variance: Doubles
    """The shape of one sample: the mean squared distance to the mean."""


def normalise_advantages(
    advantage: Floats, valid: Flags | None = None, epsilon: float = EPSILON
) -> Floats:
    """Shift and scale advantages to mean 0 and standard deviation 1.

    (A − mean) / (std + ε), with the mean and the population's standard deviation of valid entries

    Shapes: `advantage` and `valid` of one shape, any; returns that shape, in the type of
    `advantage`. Entries that are not valid are 0, and count for nothing whatever they hold.
    Equal entries give zeros, so a single entry gives 0: its sign is lost, and a learner should
    not normalise batches of one. An entry that is NaN or infinite makes all of them NaN.
    Raises: ShapeError for a `valid` of another shape, or that is not of flags, and for advantages
    that are not floats; SettingError for an epsilon that is not above 0.
    """
    advantage = np.asarray(advantage)
    if not np.issubdtype(advantage.dtype, np.floating):
        raise ShapeError(
            f"normalise_advantages: advantage: expected floats, got {advantage.dtype}; convert it "
            "with .astype(np.float32)"
        )
    expect_positive("normalise_advantages: epsilon", epsilon)
    if valid is None:
        return _standardised(advantage, epsilon)
    valid = np.asarray(valid)
    if valid.shape != advantage.shape or valid.dtype != np.bool_:
        raise ShapeError(
            f"normalise_advantages: valid: expected bool flags of the shape of advantage, "
            f"{advantage.shape}, got {valid.dtype} of {valid.shape}"
        )
    result = np.zeros_like(advantage)
    result[valid] = _standardised(advantage[valid], epsilon)
    return result


def no_moments(shape: tuple[int, ...] = ()) -> Moments:
    """Return the moments of no samples: mean 0, variance 1, so that normalising changes nothing.

    shape: of one sample; () for values.
    """
    return Moments(0, np.zeros(shape), np.ones(shape))


def merge_moments(moments: Moments, batch: Numbers) -> Moments:
    """Add a batch of samples to moments; both stay as they are.

    δ = mean_b − mean_a,  n = n_a + n_b,  mean = mean_a + δ n_b / n
    variance = (n_a variance_a + n_b variance_b + δ² n_a n_b / n) / n

    Shapes: `batch` is (..., *S) for moments of shape S; all leading axes are samples, so that
    (T, B, *S) of a fragment and (N, *S) do alike. Leave out steps that are not valid.
    The result equals the moments of all samples at once, up to rounding, in any division into
    batches. An empty batch changes nothing.
    Raises: ShapeError for a batch that is not made of such samples.
    Source: Chan, Golub and LeVeque 1983.
    """
    batch = np.asarray(batch, np.float64)
    shape = moments.mean.shape
    _expect_samples("merge_moments: batch", batch, shape)
    if batch.ndim == len(shape):
        raise ShapeError(
            f"merge_moments: batch: expected an axis of samples before their shape {shape}, got "
            f"{batch.shape}; a single sample is a batch of one, [None]"
        )
    samples = batch.reshape(math.prod(batch.shape[: batch.ndim - len(shape)]), *shape)
    if not len(samples):
        return moments
    count = moments.count + len(samples)
    share = len(samples) / count
    shift = samples.mean(0) - moments.mean
    variance = (1 - share) * moments.variance + share * samples.var(0)
    return Moments(
        count,
        np.asarray(moments.mean + shift * share),
        np.asarray(variance + shift**2 * share * (1 - share)),
    )


def normalise(
    x: Numbers, moments: Moments, *, clip: float = 10.0, epsilon: float = EPSILON
) -> Floats:
    """Shift and scale by running moments, and clip: (x − mean) / √(variance + ε), within ± clip.

    Shapes: `x` is (..., *S) for moments of shape S; returns the shape of `x`, in its type where
    that is floating, else float64. clip: above 0, in standard deviations; math.inf clips nothing.
    Raises: ShapeError for an x that is not made of such samples; SettingError for clip or epsilon.
    """
    [clip] = above_0("normalise", clip=clip)
    expect_positive("normalise: epsilon", epsilon)
    x = np.asarray(x)
    _expect_samples("normalise: x", x, moments.mean.shape)
    result = np.clip((x - moments.mean) / np.sqrt(moments.variance + epsilon), -clip, clip)
    return np.asarray(result, _float_type(x))


def denormalise(x: Numbers, moments: Moments, *, epsilon: float = EPSILON) -> Floats:
    """Undo `normalise` where it did not clip: x √(variance + ε) + mean.

    Shapes: as `normalise`. A critic that predicts normalised returns gives values this way.
    Raises: ShapeError for an x that is not made of such samples; SettingError for epsilon.
    """
    expect_positive("denormalise: epsilon", epsilon)
    x = np.asarray(x)
    _expect_samples("denormalise: x", x, moments.mean.shape)
    result = x * np.sqrt(moments.variance + epsilon) + moments.mean
    return np.asarray(result, _float_type(x))


def _standardised(values: Floats, epsilon: float) -> Floats:
    if not values.size:
        return values.copy()
    # Measured from one of them, equal entries are exactly 0 apart, whatever their mean rounds to.
    with np.errstate(invalid="ignore"):  # infinite entries make all of them NaN, as is said
        apart = np.subtract(values, values.flat[0], dtype=np.float64)
        apart -= apart.mean()
        return np.asarray(apart / (apart.std() + epsilon), values.dtype)


def _expect_samples(name: str, array: Numbers, shape: tuple[int, ...]) -> None:
    """Refuse an array that does not end in the shape of one sample, with ShapeError."""
    if array.shape[max(0, array.ndim - len(shape)) :] != shape:
        expected = ", ".join(["...", *map(str, shape)])
        raise ShapeError(
            f"{name}: expected samples of the moments' shape, ({expected}), got {array.shape}; "
            "`no_moments(shape)` makes moments of another shape"
        )


def _float_type(x: Numbers) -> np.dtype[Any]:
    return x.dtype if np.issubdtype(x.dtype, np.floating) else np.dtype(np.float64)
