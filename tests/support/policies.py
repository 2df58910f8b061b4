"""Spaces and policies for tests of the learners."""

import numpy as np
import torch
from gymnasium import spaces

from hotloop.data.layout import Layout
from hotloop.learn.policies.policy import make_policy

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
IMAGE_FIRST = spaces.Box(0, 255, (3, 40, 36), np.uint8)
IMAGE_LAST = spaces.Box(-1, 1, (36, 40, 3), np.float32)
MIXED = spaces.Dict(
    camera=IMAGE_FIRST, speed=spaces.Box(-1, 1, (2,), np.float64), gear=spaces.Discrete(3)
)
ACTIONS = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
    spaces.Box(-0.5, 0.5, (2,), np.float32),
]


def masked(space, options):
    """A space with an action mask of so many options."""
    return spaces.Dict(observation=space, action_mask=spaces.MultiBinary(options))


def sampled(space, count, seed=0):
    """A batch of `count` observations of a space; a mask may forbid everything."""
    space.seed(seed)
    return Layout.of(space).stack([space.sample() for _ in range(count)])


def moved_policy(observation_space, action_space, *, by=0.3, **settings):
    """A policy away from its start, where all actions are about equally likely."""
    policy = make_policy(observation_space, action_space, **settings)
    with torch.no_grad():
        step = by * torch.randn(policy.flat.shape, generator=torch.manual_seed(0))
        policy.flat += step.to(policy.flat.device)
    return policy
