"""Observations as vectors, images and trees; planted values, and Gymnasium's own flattening."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.data.layout import tree_map
from hotloop.errors import TargetError
from hotloop.learn.policies.observations import Observations
from support.policies import IMAGE_FIRST, IMAGE_LAST, MIXED, sampled

LEAVES = st.one_of(
    st.builds(lambda n, s: spaces.Discrete(n, start=s), st.integers(1, 4), st.integers(-2, 5)),
    st.builds(lambda n: spaces.MultiBinary(n), st.integers(1, 3)),
    st.builds(lambda n: spaces.MultiDiscrete(n), st.lists(st.integers(1, 4), min_size=1)),
    st.builds(
        lambda shape, dtype: spaces.Box(-9, 9, tuple(shape), dtype),
        st.lists(st.integers(1, 3), max_size=4),
        st.sampled_from([np.float32, np.float64, np.int16]),
    ),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            spaces.Dict, st.dictionaries(st.sampled_from("zab"), inner, min_size=1, max_size=3)
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(SPACES, st.integers(0, 3))
def test_the_vector_is_gymnasiums(space, rows):
    space.seed(rows)
    values = [space.sample() for _ in range(rows)]
    observations = Observations.of(space)
    batch = observations.layout.stack(values) if values else observations.layout.empty(0)
    vectors = observations.vector(batch)
    assert vectors.dtype == np.float32
    assert vectors.shape == (rows, observations.inputs)
    for vector, value in zip(vectors, values, strict=True):
        np.testing.assert_array_equal(vector, spaces.flatten(space, value).astype(np.float32))


def test_any_leading_dimensions():
    space = spaces.Dict(
        a=spaces.MultiDiscrete([[2, 3]]), b=spaces.Tuple([spaces.Box(0, 1, (2, 2))])
    )
    observations, batch = Observations.of(space), sampled(space, 6)
    flat = observations.vector(batch)
    time_major = tree_map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), batch)
    np.testing.assert_array_equal(observations.vector(time_major), flat.reshape(2, 3, -1))
    one = tree_map(lambda leaf: leaf[4], batch)
    np.testing.assert_array_equal(observations.vector(one), flat[4])


def test_numbers_worked_by_hand():
    space = spaces.Dict(
        gear=spaces.Discrete(3, start=-1),
        pair=spaces.MultiDiscrete([2, 3], start=[0, 5]),
        flags=spaces.MultiBinary([2, 1]),
    )
    obs = {
        "gear": np.array([1]),
        "pair": np.array([[1, 5]]),
        "flags": np.array([[[1], [0]]], np.int8),
    }
    by_key = {"gear": [0, 0, 1], "pair": [0, 1, 1, 0, 0], "flags": [1, 0]}
    expected = [number for key in space.spaces for number in by_key[key]]
    assert Observations.of(space).vector(obs)[0].tolist() == expected


def test_images_are_found_and_the_rest_is_joined():
    observations = Observations.of(MIXED)
    batch = sampled(MIXED, 4)
    image, vector = observations.images_and_vector(batch)
    assert image is batch["camera"]
    np.testing.assert_array_equal(vector[:, :2], batch["speed"].astype(np.float32))
    np.testing.assert_array_equal(vector[:, 2:], np.eye(3)[batch["gear"]])
    assert len(Observations.of(IMAGE_FIRST).images_and_vector(sampled(IMAGE_FIRST, 2))) == 1
    for space in (
        spaces.Box(0, 9, (4, 8, 8), np.int64),
        spaces.MultiBinary([8, 8, 3]),
        spaces.Box(0, 255, (84, 84), np.uint8),
    ):
        assert Observations.of(space).images == []


@pytest.mark.parametrize(
    ("shape", "first"), [((3, 40, 36), True), ((40, 36, 3), False), ((4, 9, 4), True)]
)
def test_the_smaller_outer_axis_holds_the_channels(shape, first):
    [image] = Observations.of(spaces.Box(0, 255, shape, np.uint8)).images
    assert image.channels_first is first


def test_bytes_of_an_image_are_scaled_in_the_vector_too():
    vector = Observations.of(IMAGE_FIRST).vector(np.full((1, *IMAGE_FIRST.shape), 255, np.uint8))
    np.testing.assert_allclose(vector, 1.0, rtol=1e-6)
    memory = spaces.Box(0, 255, (4,), np.uint8)  # no image: numbers as they are
    assert Observations.of(memory).vector(np.full((1, 4), 255, np.uint8)).max() == 255


def test_the_type_in_which_observations_are_stored():
    double = spaces.Box(-1, 1, (3,), np.float64)
    assert Observations.of(double).stored_dtype == np.float32
    assert Observations.of(spaces.Tuple([double, double])).stored_dtype == np.float32
    for space in (IMAGE_FIRST, IMAGE_LAST, MIXED, spaces.Discrete(2**30)):
        assert Observations.of(space).stored_dtype is None


def test_observations_as_given_are_in_single_precision():
    given_back = Observations.of(MIXED).as_given(sampled(MIXED, 2))
    kinds = {key: leaf.dtype for key, leaf in given_back.items()}
    assert kinds == {"camera": np.uint8, "speed": np.float32, "gear": np.int64}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Graph(spaces.Box(0, 1, (1,)), None),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.OneOf([spaces.Discrete(2)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_fixed_shape_are_refused(space):
    with pytest.raises(TargetError, match=r"observations\['a'\]\[1\]: expected a Box, .* wrap"):
        Observations.of(spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), space])))


def test_an_empty_observation_is_refused():
    with pytest.raises(TargetError, match="expected at least one number"):
        Observations.of(spaces.Box(0, 1, (0,)))
