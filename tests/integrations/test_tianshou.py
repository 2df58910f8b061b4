"""Tianshou on the engines here: equal to its own vector envs; its collectors and trainers run."""

import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("tianshou")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tianshou.env as theirs
    import torch
    from tianshou.algorithm import Reinforce
    from tianshou.algorithm.algorithm_base import Policy
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, Collector, PrioritizedVectorReplayBuffer, VectorReplayBuffer
    from tianshou.highlevel.env import EnvFactoryRegistered, EnvMode
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor

    from hotloop.integrations import tianshou as ours

from hotloop.errors import SettingError

KINDS = ["DummyVectorEnv", "SubprocVectorEnv", "ShmemVectorEnv"]


def cartpole():
    return gymnasium.make("CartPole-v1")


class Walk(gymnasium.Env):
    """An env that takes no notice of its declarations; settings say which."""

    def __init__(self, size=4, what="plain"):
        self.size, self.what = size, what
        self.observation_space = spaces.Box(0, size, (2,), np.float32)
        if what == "dict":
            self.observation_space = spaces.Dict(at=self.observation_space, n=spaces.Discrete(9))
        self.action_space = spaces.Discrete(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0 if options is None else options["at"]
        return self._obs(), {"draw": int(self.np_random.integers(99))}

    def step(self, action):
        if action == 3:
            raise ValueError("no such way")
        self.at += action
        reward = [self.at, 1.0] if self.what == "vector reward" else float(self.at)
        return self._obs(), reward, self.at >= self.size, False, {"deep": {"at": self.at}}

    def _obs(self):
        obs = np.full(2, self.at, np.float32)
        if self.what == "dict":
            return {"at": obs, "n": self.at}
        if self.what == "ragged":
            return np.full(self.size, float(self.at))
        return obs.astype(np.float64) if self.what == "double" else obs


@pytest.fixture
def opened():
    envs = []
    yield lambda made: envs.append(made) or made
    for made in envs:
        made.close()


def assert_same(one, other):
    if isinstance(one, np.ndarray | np.generic | int | float) and np.ndim(one) == 0:
        one, other = np.asarray(one), np.asarray(other)  # 1, np.int64(1) and array(1) are one here
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple) or (isinstance(one, np.ndarray) and one.dtype == object):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["plain", "dict", "double", "vector reward", "ragged", "cartpole"])
def test_equal_to_their_own(kind, what, opened):
    sizes = [4, 5, 6] if what == "ragged" else [5] * 3
    fns = [lambda size=size: Walk(size, what) for size in sizes]
    if what == "cartpole":
        fns = [cartpole] * 3
    if what == "ragged" and kind == "ShmemVectorEnv":
        fns = fns[:1]  # theirs has one buffer an env, and this one does not fit it
        fns = [lambda: Walk(2, what)]
    mine = opened(getattr(ours, kind)(fns))
    own = opened(getattr(theirs, kind)(fns))
    assert mine.action_space == own.action_space
    assert len(mine) == mine.env_num == len(own)
    mine.seed(7)
    own.seed(7)
    assert_same(mine.reset(), own.reset())
    rng = np.random.default_rng(0)
    over = 0
    for _ in range(30):
        ids = np.sort(rng.choice(len(fns), max(1, len(fns) - 1), replace=False))
        actions = rng.integers(0, 2, len(ids))
        got, expected = mine.step(actions, ids), own.step(actions, ids)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
        ended = ids[got[2] | got[3]]
        over += len(ended)
        if len(ended):
            assert_same(mine.reset(ended), own.reset(ended))
    assert over


def test_arguments_of_a_reset_go_to_the_env(opened):
    envs = opened(ours.SubprocVectorEnv([Walk] * 3, num_workers=2))
    envs.reset()
    obs, infos = envs.reset([2, 0], options={"at": 2}, seed=4)
    assert obs.tolist() == [[2, 2], [2, 2]]
    assert infos[0] == infos[1]  # one seed for both, as Tianshou has it


@pytest.mark.parametrize("kind", KINDS)
def test_attributes(kind, opened):
    envs = opened(getattr(ours, kind)([lambda i=i: Walk(i + 4) for i in range(3)]))
    assert envs.get_env_attr("size") == [4, 5, 6]
    envs.set_env_attr("size", 9, [0, 2])
    assert envs.get_env_attr("size", [2, 1]) == [9, 5]
    assert envs.get_env_attr("size", 0) == [9]
    assert envs.get_env_attr("nothing") == [None] * 3
    assert envs.action_space == [spaces.Discrete(n) for n in (4, 5, 6)]


def test_those_that_are_done_first(opened):
    envs = opened(ours.SubprocVectorEnv([lambda: Walk(99)] * 4, wait_num=2, timeout=100.0))
    assert envs.is_async
    envs.reset()
    first = [info["env_id"] for info in envs.step([1] * 4, np.arange(4))[-1]]
    assert len(first) >= 2
    assert sorted(envs.ready_id) == sorted(first)
    assert sorted(envs.ready_id + envs.waiting_id) == [0, 1, 2, 3]
    # Asking all envs waits for the others, and keeps what they gave.
    assert envs.get_env_attr("at") == [1] * 4
    later = []
    while envs.waiting_id:
        later += [info["env_id"] for info in envs.step(None)[-1]]
    assert sorted(first + later) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="no env is stepping"):
        envs.step(None)


def test_some_are_reset_while_others_step(opened):
    envs = opened(ours.SubprocVectorEnv([lambda: Walk(99)] * 3, wait_num=1))
    envs.reset()
    envs.step([1] * 3)
    ready = envs.ready_id[0]
    assert envs.reset([ready])[0].tolist() == [[0, 0]]
    while envs.waiting_id:
        envs.step(None)
    at = envs.get_env_attr("at")
    assert at.pop(ready) == 0
    assert at == [1, 1]


def test_an_env_that_steps_is_not_to_be_asked(opened):
    envs = opened(ours.DummyVectorEnv([Walk] * 2, wait_num=1))
    envs.waiting_id, envs.ready_id = [1], [0]
    with pytest.raises(AssertionError, match="Cannot interact with environment 1"):
        envs.reset([1])
    with pytest.raises(RuntimeError, match="still stepping"):
        envs.render()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_home_and_the_others_go_on(kind, opened):
    envs = opened(getattr(ours, kind)([lambda: Walk(99)] * 3))
    envs.reset()
    with pytest.raises(ValueError, match="no such way") as caught:
        envs.step(np.array([1, 3, 1]))
    assert "in env 1" in caught.value.__notes__
    envs.reset()
    assert envs.step(np.array([1, 1, 1]))[0].tolist() == [[1, 1]] * 3


def test_closed_is_closed():
    envs = ours.DummyVectorEnv([Walk])
    envs.close()
    envs.close()
    with pytest.raises(AssertionError, match="cannot be called after close"):
        envs.reset()


def test_misuse_is_refused(opened):
    envs = opened(ours.DummyVectorEnv([Walk] * 2))
    envs.reset()
    with pytest.raises(ValueError, match="non-async"):
        envs.step(None)
    with pytest.raises(AssertionError, match="expected 2 actions, got 3"):
        envs.step(np.zeros(3, int))
    with pytest.raises(AssertionError, match="wait_num"):
        ours.DummyVectorEnv([Walk] * 2, wait_num=3)
    with pytest.raises(SettingError, match="expected the name of a backend"):
        ours.VenvFactory("fast")


class Leaning(Policy):
    """Pushes the cart to where the pole leans: episodes of some fifty steps."""

    def __init__(self):
        super().__init__(action_space=spaces.Discrete(2))

    def forward(self, batch, state=None, **kwargs):
        act = (batch.obs[:, 2] > 0).astype(np.int64)
        logits = torch.as_tensor(np.stack([act, 1 - act], 1), dtype=torch.float32)
        return Batch(act=act, dist=torch.distributions.Categorical(logits=logits))


def collected(collector_class, env_class, buffer, collects, **settings):
    envs = env_class([cartpole] * 4)
    envs.seed(3)
    collector = collector_class(Leaning(), envs, buffer, raise_on_nan_in_buffer=False, **settings)
    collector.reset()
    stats = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that do not divide
        for how in collects:
            stats.append(collector.collect(**how))
    counts = (collector.collect_step, collector.collect_episode)
    collector.close()
    return stats, counts


def assert_same_buffers(one, other):
    """As they lie in memory: reading a buffer compiles kernels, which takes longer than filling."""
    assert len(one) == len(other)
    assert set(one._meta.get_keys()) == set(other._meta.get_keys()) >= {"obs", "info", "policy"}
    for key in one._meta.get_keys():
        assert_same_columns(getattr(one, key), getattr(other, key))
    assert_same(one.last_index, other.last_index)


def assert_same_columns(one, other):
    if isinstance(one, Batch):
        assert set(one.get_keys()) == set(other.get_keys())
        for key in one.get_keys():
            assert_same_columns(one[key], other[key])
    else:
        assert_same(one, other)


@pytest.mark.parametrize(
    "buffer_class",
    [
        VectorReplayBuffer,
        pytest.param(PrioritizedVectorReplayBuffer, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "collects",
    [
        [{"n_step": 200}, {"n_step": 210}],
        [{"n_episode": 7}, {"n_episode": 3}],
        [{"n_step": 1100}],  # more than the buffer holds
    ],
    ids=["steps", "episodes", "around the ring"],
)
def test_fragments_fill_a_buffer_as_steps_do(buffer_class, collects):
    settings = {"alpha": 0.6, "beta": 0.4} if buffer_class is not VectorReplayBuffer else {}
    expected, got = (buffer_class(1000, 4, **settings) for _ in range(2))
    their_stats, their_counts = collected(Collector, theirs.DummyVectorEnv, expected, collects)
    our_stats, our_counts = collected(
        ours.FragmentCollector, ours.SubprocVectorEnv, got, collects, fragment_length=32
    )
    assert_same_buffers(got, expected)
    assert our_counts == their_counts
    for mine, own in zip(our_stats, their_stats, strict=True):
        assert (mine.n_collected_steps, mine.n_collected_episodes) == (
            own.n_collected_steps,
            own.n_collected_episodes,
        )
        assert_same(mine.returns, own.returns)
        assert_same(mine.lens, own.lens)
        assert_same(mine.pred_dist_std_array, own.pred_dist_std_array)
        assert mine.returns_stat == own.returns_stat


def test_a_hook_sees_every_step():
    seen = []
    buffer = VectorReplayBuffer(800, 4)
    collected(
        ours.FragmentCollector,
        ours.DummyVectorEnv,
        buffer,
        [{"n_step": 40}],
        on_step_hook=lambda action, step: seen.append(len(step)),
    )
    assert seen == [4] * 10
    assert len(buffer) == 40


def test_the_high_level_factories_lead_to_training():
    factory = EnvFactoryRegistered(
        task="CartPole-v1", venv_type=ours.VenvFactory("process", num_workers=2)
    )
    envs = factory.create_venv(4, EnvMode.TRAINING, seed=1)
    assert isinstance(envs, ours.BackendVectorEnv)
    net = Net(state_shape=4, hidden_sizes=[16])
    policy = DiscreteActorPolicy(
        actor=DiscreteActor(preprocess_net=net, action_shape=2),
        action_space=spaces.Discrete(2),
    )
    algorithm = Reinforce(policy=policy, optim=AdamOptimizerFactory(lr=1e-2))
    collector = ours.FragmentCollectorFactory(fragment_length=50).create_collector(
        algorithm, envs, VectorReplayBuffer(800, 4)
    )
    assert isinstance(collector, ours.FragmentCollector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = algorithm.run_training(
            OnPolicyTrainerParams(
                training_collector=collector,
                test_collector=None,
                max_epochs=1,
                epoch_num_steps=400,
                collection_step_num_env_steps=200,
                batch_size=64,
                update_step_num_repetitions=1,
            )
        )
    assert result.train_step == 400
    assert result.train_episode > 5
    assert result.update_step > 0
    collector.close()


def test_the_experiment_builder_takes_both():
    experiment = pytest.importorskip(
        "tianshou.highlevel.experiment", exc_type=ModuleNotFoundError, reason="joblib is optional"
    )
    factory = EnvFactoryRegistered(task="CartPole-v1", venv_type=ours.VenvFactory("serial"))
    builder = experiment.PPOExperimentBuilder(
        factory,
        experiment.ExperimentConfig(persistence_enabled=False, watch=False),
        experiment.OnPolicyTrainingConfig(
            max_epochs=1,
            epoch_num_steps=400,
            num_training_envs=4,
            num_test_envs=1,
            collection_step_num_env_steps=200,
            update_step_num_repetitions=1,
            buffer_size=800,
        ),
    )
    builder.with_collector_factory(ours.FragmentCollectorFactory())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = builder.build().run(run_name="test").trainer_result
    assert result.train_step == 400


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ray_is_equal_to_one_process(opened):
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    fns = [partial(gymnasium.make, "CartPole-v1")] * 4
    try:
        plain = opened(ours.DummyVectorEnv(fns))
        envs = ours.RayVectorEnv(fns)
        for both in (plain, envs):
            both.seed(3)
        assert_same(envs.reset(), plain.reset())
        for actions in np.random.default_rng(0).integers(0, 2, (8, 4)):
            assert_same(envs.step(actions), plain.step(actions))
        envs.close()
        first = ours.RayVectorEnv(fns, wait_num=1, timeout=100.0)
        first.reset()
        done = [info["env_id"] for info in first.step([1] * 4)[-1]]
        while first.waiting_id:
            done += [info["env_id"] for info in first.step(None)[-1]]
        assert sorted(done) == [0, 1, 2, 3]
        first.close()
    finally:
        ray.shutdown()
