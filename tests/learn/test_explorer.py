"""Acting by action values: dueling Q, each env's own share of random actions, masks."""

import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hotloop.errors import TargetError
from hotloop.learn.policies.explorer import action_values, epsilons
from hotloop.learn.policies.masks import FORBIDDEN
from hotloop.learn.policies.policy import make_policy

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
MASKED = spaces.Dict({"obs": VECTOR, "action_mask": spaces.MultiBinary(4)})


def test_dueling_by_hand():
    outputs, value = np.array([[1.0, 2.0, 6.0]]), np.array([10.0])
    assert action_values(outputs, value, dueling=True).tolist() == [[8.0, 9.0, 13.0]]
    assert action_values(outputs, value, dueling=False) is outputs
    masked = np.array([[1.0, FORBIDDEN, 3.0]])
    q = action_values(masked, value, dueling=True)
    assert q[0, [0, 2]].tolist() == [9.0, 11.0], "the mean of what is allowed"
    assert q[0, 1] < -1e29


def test_arrays_and_tensors_give_the_same():
    rng = np.random.default_rng(0)
    outputs, value = rng.normal(size=(20, 5)).astype(np.float32), rng.normal(size=20)
    outputs[::3, 2] = FORBIDDEN
    value = value.astype(np.float32)
    plain = action_values(outputs, value, dueling=True)
    tensor = action_values(torch.from_numpy(outputs), torch.from_numpy(value), dueling=True)
    np.testing.assert_allclose(plain, tensor.numpy(), rtol=1e-5, atol=1e-6)


def test_shares_of_the_paper():
    # 0.4^(1 + 7 i / 3)
    expected = [0.4, 0.4 ** (10 / 3), 0.4 ** (17 / 3), 0.4**8]
    np.testing.assert_allclose(epsilons(4, 0.4, 7), expected)
    assert epsilons(1, 0.4, 7).tolist() == [0.4]
    assert epsilons(3, 0.1, 0).tolist() == [0.1] * 3


def explorer(share, space=VECTOR, actions=None):
    policy = make_policy(space, actions or spaces.Discrete(4, start=2))
    rng = np.random.default_rng(1)
    policy.flat.data.copy_(torch.from_numpy(rng.normal(size=len(policy.flat)).astype(np.float32)))
    return policy, policy.explorer(0, dueling=True, share=np.array(share))


def test_without_exploring_it_is_the_greedy_policy():
    policy, actor = explorer([0.0] * 50)
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    action, extras = actor(obs)
    np.testing.assert_array_equal(action, policy.greedy(obs))
    q = action_values(*policy.outputs(obs), dueling=True)
    np.testing.assert_allclose(extras["best"], q.max(1), rtol=1e-6)
    np.testing.assert_array_equal(extras["q"], extras["best"])
    assert set(action.tolist()) <= {2, 3, 4, 5}


def test_each_env_explores_as_often_as_it_should():
    share = [0.0, 0.2, 1.0]
    policy, actor = explorer(share)
    obs = np.zeros((3, 3), np.float32)
    best = policy.greedy(obs)[0]
    drawn = np.array([actor(obs)[0] for _ in range(6000)])
    # A random action is the best one in a quarter of the cases.
    others = (drawn != best).mean(0)
    np.testing.assert_allclose(others, 0.75 * np.array(share), atol=0.03)
    counts = np.bincount(drawn[:, 2] - 2, minlength=4) / 6000
    np.testing.assert_allclose(counts, 0.25, atol=0.03)


def test_what_it_puts_out_is_of_the_action_taken():
    policy, actor = explorer([1.0] * 40)
    obs = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    action, extras = actor(obs)
    q = action_values(*policy.outputs(obs), dueling=True)
    np.testing.assert_allclose(extras["q"], q[np.arange(40), action - 2], rtol=1e-5, atol=1e-6)
    assert (extras["q"] <= extras["best"]).all()


def test_a_copy_acts_for_the_envs_that_it_is_given():
    policy, actor = explorer([0.0, 0.0, 1.0, 1.0])
    copy = pickle.loads(pickle.dumps(actor))
    copy.seed(3)
    copy.act_for(np.array([0, 1]))
    obs = np.zeros((2, 3), np.float32)
    best = policy.greedy(obs)
    assert all((copy(obs)[0] == best).all() for _ in range(50))
    copy.act_for(np.array([2, 3]))
    assert not all((copy(obs)[0] == best).all() for _ in range(50))


def test_only_allowed_actions_are_taken():
    _, actor = explorer([0.0, 1.0] * 3, MASKED, spaces.Discrete(4))
    rng = np.random.default_rng(0)
    for _ in range(200):
        mask = rng.integers(0, 2, (6, 4)).astype(np.int8)
        mask[np.arange(6), rng.integers(0, 4, 6)] = 1
        obs = {"obs": rng.normal(size=(6, 3)).astype(np.float32), "action_mask": mask}
        action, extras = actor(obs)
        assert mask[np.arange(6), action].all()
        assert (extras["best"] > -1e20).all()


@pytest.mark.parametrize(
    "actions", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)]
)
def test_other_actions_are_refused(actions):
    with pytest.raises(TargetError, match=r"Discrete action space.*ppo"):
        explorer([0.0], actions=actions)
