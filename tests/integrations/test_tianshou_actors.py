"""Tianshou on fragment workers: buffers equal to its own collector's, and equal learning."""

import warnings
from functools import partial

import numpy as np
import psutil
import pytest
from gymnasium import spaces

pytest.importorskip("tianshou")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from tianshou.algorithm import PPO
    from tianshou.algorithm.algorithm_base import Policy
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import (
        Batch,
        CachedReplayBuffer,
        Collector,
        ReplayBuffer,
        VectorReplayBuffer,
    )
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    from hotloop.integrations.tianshou import ActorCollector

from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, TargetError
from integrations.cue_envs import Course, Cue, courses, cues
from rollout.planted_envs import PlantedEnv, faulty

SERIAL = {"backend": "serial", "num_workers": 1}
COLUMNS = ("obs", "act", "rew", "terminated", "truncated", "done", "obs_next")


class Deterministic(Policy):
    """The action is a function of the observation, plus its weight."""

    def __init__(self, nested=False, action_space=None, state=None):
        super().__init__(action_space=action_space or spaces.Discrete(3))
        self.nested, self.state = nested, state
        self.plus = torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch, state=None, **kwargs):
        obs = torch.as_tensor(batch.obs.all if self.nested else batch.obs)
        action = (obs.sum(-1) + self.plus).long() % 3
        if isinstance(self.action_space, spaces.Box):
            action = action.float()[:, None]
        dist = torch.distributions.Categorical(probs=torch.eye(3)[obs.sum(-1).long() % 3] + 0.1)
        return Batch(act=action, state=self.state, dist=dist)


@pytest.fixture
def opened():
    collectors = []
    yield lambda made: collectors.append(made) or made
    for made in collectors:
        made.close()


def leaves(buffer):
    """The columns of a buffer, those of nested observations by their path."""

    def walk(name, column):
        if isinstance(column, Batch):
            for key in column.get_keys():
                yield from walk(f"{name}.{key}", column[key])
        else:
            yield name, column

    return dict(leaf for name in COLUMNS for leaf in walk(name, getattr(buffer, name)))


def both(nested, mode, size, opened):
    """Our collector and their own, on the same four envs."""
    policy = Deterministic(nested)
    mine = ActorCollector(
        policy,
        partial(courses, nested, mode),
        VectorReplayBuffer(4 * size, 4),
        fragment_steps=10,
        backend="serial",
        num_workers=2,
    )
    fns = [partial(Course, number, nested) for number in (0, 1, 0, 1)]
    own = Collector(policy, DummyVectorEnv(fns), VectorReplayBuffer(4 * size, 4))
    own.reset()
    return opened(mine), opened(own)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
@pytest.mark.parametrize("nested", [False, True])
def test_buffers_are_those_of_their_own_collector(nested, mode, opened):
    mine, own = both(nested, mode, 25, opened)  # fewer rows than steps: around the ring
    for n_step in (40, 80, 40):
        one, other = mine.collect(n_step=n_step), own.collect(n_step=n_step)
        assert one.n_collected_steps == other.n_collected_steps == n_step
        assert one.n_collected_episodes == other.n_collected_episodes > 2
        assert sorted(one.returns) == sorted(other.returns)
        assert sorted(one.lens) == sorted(other.lens)
        assert one.returns_stat.mean == pytest.approx(other.returns_stat.mean)
        assert one.pred_dist_std_array.shape == other.pred_dist_std_array.shape
        np.testing.assert_allclose(
            np.sort(one.pred_dist_std_array, 0), np.sort(other.pred_dist_std_array, 0), rtol=1e-5
        )
    assert mine.collect_step == own.collect_step == 160
    assert mine.collect_episode == own.collect_episode
    got, expected = leaves(mine.buffer), leaves(own.buffer)
    assert got.keys() == expected.keys()
    for name in expected:
        assert got[name].dtype == expected[name].dtype, name
        np.testing.assert_array_equal(got[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(mine.buffer.last_index, own.buffer.last_index)


@pytest.mark.parametrize("nested", [False, True])
def test_steps_that_only_reset_an_env_are_left_out(nested, opened):
    mine, own = both(nested, "next_step", 40, opened)
    mine.collect(n_step=160)
    own.collect(n_step=160)
    for part, whole in zip(mine.buffer.buffers, own.buffer.buffers, strict=True):
        assert 20 < len(part) < len(whole) == 40
        got, expected = leaves(part), leaves(whole)
        for name in expected:
            np.testing.assert_array_equal(
                got[name][: len(part)], expected[name][: len(part)], err_msg=name
            )


class Rewarded(PlantedEnv):
    """The reward is the action."""

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(0)
        return obs, float(np.sum(action)), terminated, truncated, info


def rewarded(width=2):
    return SerialVectorEnv([Rewarded] * width, autoreset_mode="same_step")


def made_of(policy, make_envs=rewarded, **settings):
    given = {"fragment_steps": 10, "buffer": VectorReplayBuffer(400, 2), **SERIAL, **settings}
    return ActorCollector(policy, make_envs, given.pop("buffer"), **given)


@pytest.mark.parametrize("low", [-1.0, 3.0])
def test_envs_get_mapped_actions_and_the_buffer_those_of_the_policy(low, opened):
    space = spaces.Box(low, low + 4, (1,), np.float32)

    class Boxed(Rewarded):
        action_space = space

    policy = Deterministic(action_space=space)
    policy.action_scaling = True
    made = opened(made_of(policy, lambda: SerialVectorEnv([Boxed] * 2, autoreset_mode="same_step")))
    made.collect(n_step=20)
    for part in made.buffer.buffers:
        assert set(part.act[:10, 0].tolist()) == {0.0, 1.0, 2.0}
        mapped = policy.map_action(part.act[:10])[:, 0]
        assert set(mapped.tolist()) == {low + 2, low + 4}
        np.testing.assert_array_equal(part.rew[:10], mapped)


@pytest.mark.parametrize("backend", ["serial", pytest.param("process", marks=pytest.mark.slow)])
def test_the_newest_policy_acts_and_nothing_is_left(backend):
    children = set(psutil.Process().children(recursive=True))
    policy = Deterministic()
    made = made_of(policy, backend=backend)
    try:
        before = made.collect(n_step=20)
        first = made.buffer.act[:10].copy()
        obs = made.buffer.obs[:10].sum(1).astype(int)
        np.testing.assert_array_equal(first, obs % 3)
        with torch.no_grad():
            policy.plus += 1
        made.reset_buffer()
        made.collect(n_step=20)
        obs = made.buffer.obs[:10].sum(1).astype(int)
        np.testing.assert_array_equal(made.buffer.act[:10], (obs + 1) % 3)
        assert before.n_collected_steps == 20
        assert made.collect_step == 40
    finally:
        made.close()
        made.close()
    assert set(psutil.Process().children(recursive=True)) <= children
    with pytest.raises(SettingError, match="one that is closed"):
        made.collect(n_step=20)


def test_plain_attributes_of_the_policy_travel_too(opened):
    class Switched(Deterministic):
        factor = 0

        def forward(self, batch, state=None, **kwargs):
            action = np.full(len(batch.obs), self.factor + 2 * self.is_within_training_step)
            assert not self.training  # as Tianshou's collectors have it
            return Batch(act=action, state=None)

    policy = Switched()
    made = opened(made_of(policy))
    for factor, training, action in [(0, False, 0), (1, False, 1), (0, True, 2)]:
        policy.factor, policy.is_within_training_step = factor, training
        made.reset_buffer()
        stats = made.collect(n_step=20)
        assert (made.buffer.act[:10] == action).all()
        assert stats.pred_dist_std_array is None


def test_noise_is_added_where_it_is_asked_for(opened):
    class Noisy(Deterministic):
        def add_exploration_noise(self, act, batch):
            return np.where(np.random.rand(len(act)) < 0.5, act, 2 - act)

    state = np.random.get_state()[2]
    acts = []
    for noise in (False, True, True):
        made = opened(made_of(Noisy(), exploration_noise=noise, seed=3))
        made.collect(n_step=20)
        acts.append(made.buffer.act[:10].tolist())
    assert acts[0] != acts[1] == acts[2]
    assert np.random.get_state()[2] == state


def test_a_reset_starts_the_workers_anew(opened):
    made = opened(made_of(Deterministic(), fragment_steps=3))
    made.reset()  # nothing has begun
    made.collect(n_step=6)
    assert made.buffer.obs[:3, 0].tolist() == [0, 0, 0]  # the seed
    made.reset(reset_buffer=False)
    assert made.collect_step == 0
    made.collect(n_step=6)
    assert len(set(made.buffer.obs[3:6, 0].tolist()) - {0.0}) == 1
    assert made.buffer.done[2]  # a cut is an end
    with pytest.raises(SettingError, match="gym_reset_kwargs"):
        made.reset(gym_reset_kwargs={"seed": 3})


def collect_for_ever(collector):
    while True:
        collector.collect(n_step=2)


def test_an_episode_that_broke_off_is_cut_in_the_buffer(opened):
    """The worker raises in the third episode of env 0, and is replaced."""
    made = opened(made_of(Deterministic(), partial(faulty, "raise", 0), fragment_steps=1))
    with pytest.raises(ZeroDivisionError, match="the planted fault") as caught:
        collect_for_ever(made)
    assert "in fragment worker 0" in caught.value.__notes__
    steps = len(made.buffer.buffers[1])
    last = made.buffer.last_index.copy()
    done, terminated = made.buffer.done[last].copy(), made.buffer.terminated[last].copy()
    assert not done.all()
    stats = made.collect(n_step=2)
    assert len(made.buffer.buffers[1]) == steps + 1
    assert made.buffer.done[last].all()
    np.testing.assert_array_equal(made.buffer.terminated[last], terminated)
    np.testing.assert_array_equal(made.buffer.truncated[last][~done], True)
    # What follows begins with step 0 of another episode.
    assert (made.buffer.obs[made.buffer.last_index][:, 2] == 0).all()
    while not stats.n_collected_episodes:
        stats = made.collect(n_step=2)
    # Planted lengths of the new seeds, not the sum of what came before and after the cut.
    seeds = made.buffer.obs[made.buffer.last_index][:, 0]
    assert set(stats.lens.tolist()) <= {1 + int(7 * seed) % 6 for seed in seeds}


def lost_in_step(lost_t):
    """Two envs, of which env 1 is lost with its process in a step of the first fragment."""

    class Losing(SerialVectorEnv):
        at = 0

        def step(self, actions):
            obs, reward, terminated, truncated, infos = super().step(actions)
            if self.at == lost_t:
                truncated = truncated | np.array([False, True])
                terminated = terminated & ~truncated
                final = infos.get("final_obs", np.full(2, None, object))
                final[1] = obs[1].copy()
                infos = {**infos, "final_obs": final, "worker_restarted": np.array([False, True])}
            self.at += 1
            return obs, reward, terminated, truncated, infos

    return Losing([PlantedEnv] * 2, autoreset_mode="same_step")


@pytest.mark.parametrize("lost_t", [2, 3, 5])
def test_a_step_lost_with_its_process_is_left_out_and_the_episode_cut(lost_t, opened):
    made = opened(made_of(Deterministic(), lambda: lost_in_step(lost_t), fragment_steps=5))
    whole = opened(made_of(Deterministic(), lambda: lost_in_step(-1), fragment_steps=5))
    for collector in (made, whole):
        collector.collect(n_step=10)
        collector.collect(n_step=10)
    own, expected = made.buffer.buffers, whole.buffer.buffers
    assert len(own[0]) == len(expected[0]) == 10
    np.testing.assert_array_equal(own[0].obs[:10], expected[0].obs[:10])
    assert len(own[1]) == 9
    np.testing.assert_array_equal(own[1].obs[:9], np.delete(expected[1].obs[:10], lost_t, axis=0))
    assert own[1].done[lost_t - 1]
    assert own[1].truncated[lost_t - 1] != own[1].terminated[lost_t - 1]
    assert made.collect_step == 19


def learner(seed):
    torch.manual_seed(seed)
    np.random.seed(seed)
    nets = [Net(state_shape=3, hidden_sizes=[32]) for _ in range(2)]
    policy = DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=nets[0], action_shape=3, softmax_output=False),
        action_space=spaces.Discrete(3),
    )
    return PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=nets[1]),
        gamma=0.5,
        advantage_normalization=True,
        optim=AdamOptimizerFactory(lr=1e-2),
    )


def learned(make_collector, seed, epochs=12):
    """The mean reward of a policy after Tianshou's own trainer."""
    algorithm = learner(seed)
    collector = make_collector(algorithm, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = algorithm.create_trainer(
            OnPolicyTrainerParams(
                training_collector=collector,
                max_epochs=epochs,
                epoch_num_steps=128,
                collection_step_num_env_steps=128,
                batch_size=32,
                update_step_num_repetitions=8,
                show_progress=False,
            )
        )
        trainer.reset()
        for _ in range(epochs):
            trainer.execute_epoch()
    collector.reset_buffer()
    collector.collect(n_step=128)
    collector.close()
    return collector.buffer.rew.mean()


def their_collector(algorithm, seed):
    envs = DummyVectorEnv([Cue] * 4)
    envs.seed(seed)
    return Collector(algorithm, envs, VectorReplayBuffer(128, 4))


def our_collector(algorithm, seed, width=4, **settings):
    return ActorCollector(
        algorithm,
        cues,
        VectorReplayBuffer(128, width),
        fragment_steps=128 // width,
        seed=seed,
        **{**SERIAL, **settings},
    )


@pytest.mark.slow
def test_learning_with_their_trainer_is_equal():
    ours = [learned(our_collector, seed) for seed in range(3)]
    own = [learned(their_collector, seed) for seed in range(3)]
    # At random 0.33; both end near 0.95.
    assert np.median(ours) > 0.8
    assert np.median(own) > 0.8
    assert abs(np.median(ours) - np.median(own)) < 0.12


@pytest.mark.slow
def test_learning_in_processes_is_equal():
    made = partial(our_collector, width=8, backend="process", num_workers=2)
    ours = [learned(made, seed, epochs=16) for seed in range(5)]
    own = [learned(their_collector, seed, epochs=16) for seed in range(5)]
    assert np.median(ours) > 0.8
    assert abs(np.median(ours) - np.median(own)) < 0.1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buffer": ReplayBuffer(10)}, "buffer: expected one with a part for each env"),
        (
            {"buffer": CachedReplayBuffer(ReplayBuffer(10), 2, 50)},
            "buffer: expected one with a part for each env",
        ),
        ({"num_workers": 3}, "a multiple of 3, got 2"),
        ({"fragment_steps": 300}, "room for the 300 steps"),
        ({"fragment_steps": 0}, "fragment_steps: expected a number above 0"),
        ({"on_step_hook": None}, "hooks need FragmentCollector"),
        ({"frame_stak": 4}, "did you mean 'frame_stack'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        made_of(Deterministic(), **settings)


@pytest.mark.filterwarnings("ignore:n_step=|n_episode=")
def test_messages(opened):
    made = opened(made_of(Deterministic()))
    for arguments, message in [
        ({"n_episode": 2}, "the short ones"),
        ({"n_step": 30}, "expected a multiple of 20"),
        ({"n_step": 20, "random": True}, "no random"),
        ({"n_step": 20, "render": 0.1}, "no render"),
    ]:
        with pytest.raises(SettingError, match=message):
            made.collect(**arguments)
    with pytest.raises(SettingError, match="expected 2 envs a worker"):
        opened(made_of(Deterministic(), partial(rewarded, 1))).collect(n_step=20)
    recurrent = Deterministic(state=torch.zeros(2))
    with pytest.raises(TargetError, match="without states"):
        opened(made_of(recurrent)).collect(n_step=20)
