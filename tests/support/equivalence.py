"""Spaces of every kind, and the same steps for several vector envs that have to be equal."""

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from support.sampled_envs import Words
from support.trees import assert_same

COMMON = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
    "phases": [Phase.generate],  # shrinking takes minutes with processes
}
DISCRETE = spaces.Discrete(3)
BOX = spaces.Box(-1, 1, (3,), np.float32)

leaf_spaces = st.one_of(
    st.builds(
        lambda dtype, shape: spaces.Box(-2, 3, shape, dtype),
        st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64]),
        st.sampled_from([(), (1,), (3,), (2, 1, 3)]),
    ),
    st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), st.sampled_from([(4,), (3, 2)])),
    st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
    st.sampled_from([spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([[2, 3], [4, 5]])]),
    st.sampled_from([spaces.MultiBinary(3), spaces.MultiBinary((2, 2))]),
    st.builds(spaces.Text, st.integers(1, 6)),
    st.sampled_from(
        [
            spaces.Graph(BOX, spaces.Discrete(3)),
            spaces.Graph(BOX, None),
            spaces.Sequence(DISCRETE),
            spaces.Sequence(BOX, stack=True),
            spaces.OneOf([DISCRETE, BOX]),
            Words(),
        ]
    ),
)
pairs = st.tuples(leaf_spaces, leaf_spaces)
any_space = st.one_of(
    leaf_spaces,
    pairs.map(spaces.Tuple),
    pairs.map(lambda pair: spaces.Dict(b=pair[0], a=pair[1])),
    st.tuples(leaf_spaces, pairs).map(
        lambda three: spaces.Tuple(
            (spaces.Dict(z=spaces.Tuple([three[0]]), y=three[1][0]), three[1][1])
        )
    ),
)
NESTED = spaces.Dict(
    image=spaces.Box(0, 255, (2, 3), np.uint8),
    pair=spaces.Tuple((spaces.Text(4), spaces.Box(-1, 1, (), np.float16))),
)


def drive(engines, steps=12, seed=0, actions=None, reset_at=None):
    """All take the same steps and resets; the first is the one that the others must equal."""
    plain = engines[0]
    plain.action_space.seed(seed)
    same_results(engines, lambda envs: envs.reset(seed=seed))
    for number in range(steps):
        action = plain.action_space.sample() if actions is None else actions(number)
        step = same_results(engines, lambda envs, action=action: envs.step(action))
        over = np.array(step[2] | step[3])
        if number == reset_at:
            same_results(engines, lambda envs: envs.reset(options={"why": "now"}))
        elif over.any() and plain.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            same_results(
                engines, lambda envs, over=over: envs.reset(options={"reset_mask": over.copy()})
            )


def same_results(engines, act):
    """What all do alike; the first is the one that the others must equal."""
    plain, *others = engines
    expected = act(plain)
    for other in others:
        assert_same(act(other), expected)
    return expected
