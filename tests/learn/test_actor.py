"""Actors: they share the policy's memory here, and work without the learner elsewhere."""

import pickle
import subprocess
import sys
from functools import partial

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from hotloop.envs import make_vec
from hotloop.errors import ShapeError
from hotloop.learn.policies.actor_critic import CopiedPerceptron
from hotloop.learn.policies.policy import make_policy
from hotloop.rollout import FragmentCollector
from hotloop.rollout.worker import TakesSeed, TakesWeights
from support.policies import ACTIONS, IMAGE_FIRST, MIXED, VECTOR, masked, moved_policy, sampled

TREE = spaces.Dict(a=spaces.Discrete(3), b=spaces.Tuple([VECTOR]))
CASES = [
    *((VECTOR, action, {}) for action in ACTIONS),
    (masked(TREE, 5), spaces.MultiDiscrete([2, 3]), {"normalise_observations": True}),
    (MIXED, spaces.Discrete(2), {}),
    (IMAGE_FIRST, spaces.Box(-1, 1, (2,)), {"network": "impala_cnn"}),
]


CARTPOLE = spaces.Box(-5, 5, (4,), np.float32)


def linear_network(space):
    return nn.Sequential(nn.Linear(space.shape[0], 6), nn.Tanh())


def observed(space, rows=6):
    obs = sampled(space, rows)
    if isinstance(obs, dict) and "action_mask" in obs:
        obs["action_mask"][:, [0, 2]] = 1
    return obs


def expect_same(first, second):
    np.testing.assert_array_equal(first[0], second[0])
    for name in ("log_prob", "value"):
        np.testing.assert_array_equal(first[1][name], second[1][name])


@pytest.mark.parametrize(("space", "action_space", "settings"), CASES, ids=str)
def test_a_copy_acts_as_its_policy(space, action_space, settings):
    policy = moved_policy(space, action_space, by=0.02, **settings)
    obs = observed(space)
    if settings.get("normalise_observations"):
        policy.update_moments(obs)
    copies = [pickle.loads(pickle.dumps(policy.actor(5))) for _ in range(2)]
    expected = policy.actor(5)(obs)
    assert expected[0].dtype == policy.action_dtype or action_space.dtype == np.float32
    for extra in expected[1].values():
        assert extra.dtype == np.float32
        assert extra.shape == (6,)
    expect_same(copies[0](obs), expected)
    assert all(action_space.contains(a) for a in copies[0].for_env(expected[0]))
    # The copy stays as it is when the policy learns, until it is given the weights.
    with torch.no_grad():
        policy.flat += 0.05
    if settings.get("normalise_observations"):
        policy.update_moments(sampled(space, 9, seed=1))
    expect_same(copies[1](obs), expected)
    weights = pickle.loads(pickle.dumps(policy.weights()))
    for copy in copies:
        copy.load_weights(weights)
        copy.seed(7)
        expect_same(copy(obs), policy.actor(7)(obs))
        again = pickle.loads(pickle.dumps(copy))
        again.seed(7)
        expect_same(again(obs), policy.actor(7)(obs))


def test_an_actor_of_the_same_process_follows_the_policy():
    policy = moved_policy(VECTOR, spaces.Discrete(3), normalise_observations=True)
    obs, actor = observed(VECTOR), policy.actor(np.random.default_rng(1))
    before = actor(obs)[1]["value"]
    with torch.no_grad():
        policy.flat += 0.1
    moved = actor(obs)[1]["value"]
    assert not np.allclose(before, moved)
    policy.update_moments(obs)
    assert not np.allclose(moved, actor(obs)[1]["value"])
    np.testing.assert_array_equal(actor(obs)[1]["value"], policy.outputs(obs)[1])


def test_the_generator_that_is_given_is_the_one_drawn_from():
    rng = np.random.default_rng(1)
    actor = make_policy(VECTOR, spaces.Discrete(3)).actor(rng)
    state = rng.bit_generator.state["state"]
    actor(observed(VECTOR))
    assert actor.rng is rng
    assert rng.bit_generator.state["state"] != state


def test_workers_know_how_to_update_and_seed_it():
    actor = make_policy(VECTOR, spaces.Discrete(3)).actor(0)
    assert isinstance(actor, TakesWeights)
    assert isinstance(actor, TakesSeed)


def test_a_perceptron_acts_without_torch(tmp_path):
    """In a fresh process, with a mask, a tree of observations and moments."""
    space = masked(TREE, 5)
    actions = spaces.MultiDiscrete([2, 3], dtype=np.int32)
    policy = moved_policy(space, actions, normalise_observations=True)
    obs = observed(space)
    policy.update_moments(obs)
    expected = policy.actor(5)(obs)
    file = tmp_path / "actor"
    file.write_bytes(
        pickle.dumps((policy.actor(5), policy.for_env, obs, policy.weights(), expected))
    )
    code = (
        "import pickle, sys, numpy as np\n"
        "actor, for_env, obs, weights, expected = pickle.load(open(sys.argv[1], 'rb'))\n"
        "actor.load_weights(weights)\n"
        "action, extras = actor(obs)\n"
        "np.testing.assert_array_equal(action, expected[0])\n"
        "assert for_env(action).dtype == actor.for_env(action).dtype == np.int32\n"
        "np.testing.assert_allclose(extras['value'], expected[1]['value'], rtol=1e-5)\n"
        "heavy = {'torch', 'ray', 'numba'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.long
@pytest.mark.parametrize("network", ["mlp", linear_network])
def test_it_acts_in_a_worker_by_the_weights_that_are_sent(network):
    policy = moved_policy(CARTPOLE, spaces.Discrete(2), network=network)
    make_envs = partial(make_vec, "CartPole-v1", 2, backend="serial", autoreset_mode="same_step")

    def expect_acted_by_the_policy(fragment):
        obs = fragment.obs.reshape(-1, 4)
        outputs, value = policy(policy.tensors(obs))
        action = torch.from_numpy(fragment.action.reshape(-1))
        log_prob = policy.distribution.log_prob(outputs, action).detach()
        got = {name: extra.reshape(-1) for name, extra in fragment.extras.items()}
        np.testing.assert_allclose(got["log_prob"], log_prob, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["value"], value.detach(), rtol=1e-4, atol=1e-5)

    with FragmentCollector(
        make_envs, policy.actor(0), fragment_steps=8, num_workers=1, double_buffer=False
    ) as collector:
        [fragment] = collector.collect()
        expect_acted_by_the_policy(fragment)
        with torch.no_grad():
            policy.flat += 0.2
        version = collector.update(policy.weights())
        while fragment.versions[0] < version:
            [fragment] = collector.collect()
        expect_acted_by_the_policy(fragment)


def test_a_pickled_network_is_no_larger_than_its_parameters():
    """Each parameter is a view of one vector, which must not travel with each of them."""
    policy = make_policy(IMAGE_FIRST, spaces.Discrete(4))
    assert len(pickle.dumps(policy.actor(0))) < 4 * len(policy.flat) + 100_000


def test_a_network_defined_in_a_script_travels_by_value():
    def network(space):
        class Doubled(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(5, 3)

            def forward(self, obs):
                return 2 * self.inner(obs)

        return Doubled()

    policy = moved_policy(VECTOR, spaces.Discrete(2), network=network)
    copy = cloudpickle.loads(cloudpickle.dumps(policy.actor(1)))
    obs = observed(VECTOR)
    expect_same(copy(obs), policy.actor(1)(obs))


def test_arrays_of_a_message_are_taken_as_weights():
    """What arrives with Ray cannot be written; it is copied."""
    for space in (VECTOR, IMAGE_FIRST):
        policy = make_policy(space, spaces.Discrete(2))
        weights = policy.weights()
        weights.parameters.flags.writeable = False
        copy = pickle.loads(pickle.dumps(policy.actor(0)))
        copy.load_weights(weights)
        expect_same(copy(observed(space)), policy.actor(0)(observed(space)))


def test_a_perceptron_on_another_device_is_copied_to_act():
    """The CPU stands for the device: what acts is a copy there too."""
    policy = moved_policy(VECTOR, spaces.Discrete(3))
    elsewhere = policy.flat.detach().clone()
    copied = CopiedPerceptron(pickle.loads(pickle.dumps(policy.network.acting)), elsewhere)
    obs = observed(VECTOR)
    elsewhere += 0.1
    with torch.no_grad():
        policy.flat += 0.1
    for acting in (copied, pickle.loads(pickle.dumps(copied))):
        for got, expected in zip(acting(obs), policy.outputs(obs), strict=True):
            np.testing.assert_array_equal(got, expected)
    copied.load(make_policy(VECTOR, spaces.Discrete(3), seed=8).weights())
    assert torch.equal(elsewhere, make_policy(VECTOR, spaces.Discrete(3), seed=8).flat)


def test_weights_of_another_policy_are_refused():
    actor = pickle.loads(pickle.dumps(make_policy(VECTOR, spaces.Discrete(2)).actor(0)))
    other = make_policy(VECTOR, spaces.Discrete(2), hidden_size=8)
    with pytest.raises(ShapeError, match=r"weights: parameters: expected shape \(\d+,\), got"):
        actor.load_weights(other.weights())
    normalised = make_policy(VECTOR, spaces.Discrete(2), normalise_observations=True)
    with pytest.raises(ShapeError, match="a policy without normalised observations"):
        actor.load_weights(normalised.weights())
    images = make_policy(IMAGE_FIRST, spaces.Discrete(2)).actor(0)
    with pytest.raises(ShapeError, match="weights: parameters"):
        images.load_weights(other.weights())
