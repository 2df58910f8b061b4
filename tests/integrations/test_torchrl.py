"""TorchRL on fragment workers: batches equal to its own collector's, and equal learning."""

import warnings
from functools import partial

import numpy as np
import psutil
import pytest

pytest.importorskip("torchrl")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torch import nn
    from torchrl.collectors import BaseCollector, Collector
    from torchrl.envs import GymWrapper
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from hotloop.integrations.torchrl import ActorCollector

from hotloop.envs.serial import SerialVectorEnv
from hotloop.errors import SettingError, TargetError, WorkerError
from integrations.cue_envs import Course, Cue, courses, cues
from rollout.planted_envs import Everything, faulty

SERIAL = {"backend": "serial", "num_workers": 1}


def act(obs):
    """An action for each observation, and something else that is written."""
    return obs.sum(-1).long() % 3, obs[..., 1:] * 2


def act_one_hot(obs):
    return nn.functional.one_hot(obs.sum(-1).long() % 3, 3), obs[..., 1:] * 2


def planted_policy(nested=False, one_hot=False):
    return TensorDictModule(
        act_one_hot if one_hot else act,
        in_keys=["all" if nested else "observation"],
        out_keys=["action", ("written", "twice")],
    )


@pytest.fixture
def opened():
    collectors = []
    yield lambda made: collectors.append(made) or made
    for made in collectors:
        made.shutdown()


def theirs(policy, number, nested, one_hot, frames, batches):
    """TorchRL's own collector on one env; its warnings are its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = GymWrapper(Course(number, nested), categorical_action_encoding=not one_hot)
        collector = Collector(
            env, policy, frames_per_batch=frames, total_frames=frames * batches, trust_policy=True
        )
        got = [batch.clone() for batch in collector]
        collector.shutdown()
    return got


def renumbered(ids):
    """Numbers of trajectories by their first appearance in a row."""
    return [list(dict.fromkeys(row)).index(n) for row in ids.tolist() for n in row]


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
@pytest.mark.parametrize(("nested", "one_hot"), [(False, False), (True, False), (False, True)])
def test_batches_are_those_of_their_own_collector(nested, one_hot, mode, opened):
    policy = planted_policy(nested, one_hot)
    mine = opened(
        ActorCollector(
            partial(courses, nested, mode),
            policy,
            fragment_steps=10,
            frames_per_batch=40,
            total_frames=120,
            one_hot=one_hot,
            backend="serial",
            num_workers=2,
        )
    )
    got = list(mine)
    assert len(got) == len(mine) == 3
    expected = [theirs(policy, number, nested, one_hot, 10, 3) for number in (0, 1)]
    for k, batch in enumerate(got):
        assert batch.batch_size == (4, 10)
        for row in range(4):
            own = expected[row % 2][k]
            assert set(batch.keys(True, True)) == set(own.keys(True, True))
            for key in own.keys(True, True):
                if key != ("collector", "traj_ids"):
                    assert batch[row][key].dtype == own[key].dtype, key
                    torch.testing.assert_close(batch[row][key], own[key], rtol=0, atol=0)
    for row in range(4):
        ids = torch.cat([batch["collector", "traj_ids"][row] for batch in got])[None]
        own = torch.cat([batch["collector", "traj_ids"] for batch in expected[row % 2]])[None]
        assert renumbered(ids) == renumbered(own)
    every = torch.cat([batch["collector", "traj_ids"] for batch in got], 1)
    assert len(set(every.unique().tolist())) == sum(len(set(row)) for row in every.tolist())


def test_episodes_end_inside_a_batch_and_at_its_cut(opened):
    """So that the comparison above has seen each of them."""
    mine = opened(
        ActorCollector(courses, planted_policy(), fragment_steps=10, frames_per_batch=20, **SERIAL)
    )
    batches = [mine.next() for _ in range(8)]
    for kind in ("terminated", "truncated"):
        ends = torch.stack([batch["next", kind] for batch in batches])
        assert ends[:, :, :-1].any()
        assert ends[:, :, -1].any()
        assert not torch.stack([batch[kind] for batch in batches]).any()
    assert mine.stats()["frames"] == 160
    assert mine.stats()["batches"] == 8
    assert isinstance(mine, BaseCollector)
    with pytest.raises(RuntimeError, match="do not have a length"):
        len(mine)


class Chooses(nn.Module):
    """Logits of three actions, and a value, in one small network each."""

    def __init__(self, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs))

    def forward(self, obs):
        return self.net(obs)


def actor():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ProbabilisticActor(
            TensorDictModule(Chooses(3), in_keys=["observation"], out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        )


def learned(make_collector, seed, updates=12, send=True):
    """The mean reward of the last batches of TorchRL's PPO."""
    torch.manual_seed(seed)
    policy, value = actor(), ValueOperator(Chooses(1), in_keys=["observation"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        advantage = GAE(gamma=0.9, lmbda=0.9, value_network=value)
        loss = ClipPPOLoss(policy, value, entropy_coeff=0.01)
        collector = make_collector(policy, seed, updates)
    optimiser = torch.optim.Adam(loss.parameters(), 1e-2)
    rewards = []
    for batch in collector:
        rewards.append(float(batch["next", "reward"].mean()))
        for _ in range(4):
            with torch.no_grad():
                advantage(batch)
            parts = loss(batch.reshape(-1))
            total = parts["loss_objective"] + parts["loss_critic"] + parts["loss_entropy"]
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
        if send:
            collector.update_policy_weights_()
    collector.shutdown()
    return np.mean(rewards[-3:])


FRAMES = 128


def their_collector(policy, seed, updates):
    env = GymWrapper(Cue(), categorical_action_encoding=True)
    env.set_seed(seed)
    return Collector(
        env, policy, frames_per_batch=FRAMES, total_frames=FRAMES * updates, trust_policy=True
    )


def our_collector(policy, seed, updates, **settings):
    return ActorCollector(
        cues,
        policy,
        fragment_steps=FRAMES // 4,
        frames_per_batch=FRAMES,
        total_frames=FRAMES * updates,
        seed=seed,
        **{**SERIAL, **settings},
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # TorchRL's own
def test_learning_is_equal():
    ours = [learned(our_collector, seed) for seed in range(3)]
    own = [learned(their_collector, seed) for seed in range(3)]
    # At random 0.33; both end near 0.97.
    assert np.median(ours) > 0.85
    assert np.median(own) > 0.85
    assert abs(np.median(ours) - np.median(own)) < 0.1


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_without_new_weights_nothing_is_learned():
    assert learned(our_collector, 0, send=False) < 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("work_ahead", [False, True])
def test_learning_in_processes_is_equal(work_ahead):
    made = partial(our_collector, backend="process", num_workers=2, work_ahead=work_ahead)
    ours = [learned(made, seed, updates=20) for seed in range(5)]
    own = [learned(their_collector, seed, updates=20) for seed in range(5)]
    assert abs(np.median(ours) - np.median(own)) < 0.1
    assert np.median(ours) > 0.85


def test_the_same_seed_gives_the_same_batches_and_leaves_other_generators_alone(opened):
    policy, batches = actor(), []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        collector = opened(our_collector(policy, seed, 2, num_workers=2))
        before = torch.get_rng_state(), np.random.get_state()[2]
        batches.append(torch.cat(list(collector)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.random.get_state()[2] == before[1]
    assert (batches[0] == batches[1]).all()
    assert not torch.equal(batches[0]["action"], batches[2]["action"])
    # Workers draw differently, though their weights are equal.
    drawn = batches[0]["action"]
    assert not torch.equal(drawn[:4], drawn[4:8])
    log_probs = policy.get_dist(batches[0]).log_prob(batches[0]["action"])
    torch.testing.assert_close(log_probs.detach(), batches[0]["action_log_prob"])


class Constant(nn.Module):
    """The action is its weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, obs):
        return (self.weight + self.offset).long().expand(obs.shape[0])


def constant_policy():
    return TensorDictModule(Constant(), in_keys=["observation"], out_keys=["action"])


@pytest.mark.parametrize("backend", ["serial", pytest.param("process", marks=pytest.mark.slow)])
def test_the_newest_weights_act_and_nothing_is_left(backend):
    children = set(psutil.Process().children(recursive=True))
    policy = constant_policy()
    collector = ActorCollector(
        courses, policy, fragment_steps=5, frames_per_batch=20, num_workers=2, backend=backend
    )
    try:
        assert (collector.next()["action"] == 0).all()
        policy.module.weight.data += 1
        collector.update_policy_weights_()
        assert (collector.next()["action"] == 1).all()
        other = constant_policy()
        other.module.offset += 2
        for weights in (other, other.state_dict(), TensorDict.from_module(other)):
            collector.update_policy_weights_(weights)
        assert (collector.next()["action"] == 2).all()
        assert collector.policy_version == collector.stats()["policy_version"] == 4
        saved = collector.state_dict()
        policy.module.weight.data += 5
        assert saved["frames"] == 60
        collector.load_state_dict({**saved, "policy_state_dict": constant_policy().state_dict()})
        assert (collector.next()["action"] == 0).all()
    finally:
        collector.shutdown()
        collector.shutdown()
    assert set(psutil.Process().children(recursive=True)) <= children


def test_an_error_in_a_worker_ends_the_iteration():
    made = ActorCollector(
        partial(faulty, "raise", 0),
        planted_policy(),
        fragment_steps=5,
        frames_per_batch=10,
        restarts=0,
        **SERIAL,
    )
    with pytest.raises(ZeroDivisionError, match="the planted fault"):
        for _ in made:
            pass
    assert made.closed
    with pytest.raises(WorkerError, match="closed"):
        next(iter(made))


def test_a_replaced_worker_begins_other_trajectories(opened):
    made = opened(
        ActorCollector(
            partial(faulty, "raise", 0),
            planted_policy(),
            fragment_steps=1,
            frames_per_batch=2,
            restarts=1,
            **SERIAL,
        )
    )
    batches = []
    # The iterator alone, for iterating over the collector ends it with an error.
    with pytest.raises(ZeroDivisionError):
        batches.extend(made.iterator())
    seen = set(torch.cat(batches)["collector", "traj_ids"].flatten().tolist())
    after = next(made.iterator())
    assert not seen & set(after["collector", "traj_ids"].flatten().tolist())


def plain(**settings):
    given = {"fragment_steps": 5, "frames_per_batch": 10, **SERIAL, **settings}
    make_envs, policy = given.pop("make_envs", courses), given.pop("policy", planted_policy())
    return ActorCollector(make_envs, policy, **given)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replay_buffer": None}, "extend the replay buffer"),
        ({"trajs_per_batch": 3}, "fixed number of frames"),
        ({"num_worker": 3}, "did you mean 'num_workers'"),
        ({"dtype": 3}, "expected a setting of ActorCollector"),
        ({"total_frames": 0}, "total_frames: expected a number above 0"),
        ({"frames_per_batch": -1}, "frames_per_batch: expected"),
        ({"backend": "thread"}, "backend: expected"),
    ],
)
def test_settings_that_do_not_apply_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        plain(**settings)


def recurrent():
    return TensorDictModule(
        lambda obs, state: (obs, state), ["observation", "state"], ["action", "state"]
    )


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"frames_per_batch": 15}, SettingError, "expected a multiple of 10 frames"),
        ({"make_envs": partial(courses, mode="next_step")}, TargetError, "same_step"),
        ({"policy": recurrent()}, TargetError, "states of recurrent policies"),
        (
            {"policy": TensorDictModule(act, ["observation"], ["move", "x"])},
            TargetError,
            "expected 'action'",
        ),
        (
            {
                "make_envs": lambda: SerialVectorEnv([Everything], autoreset_mode="same_step"),
            },
            TargetError,
            "pair: expected an array of numbers or a Dict",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_first_batch(settings, error, message):
    with pytest.raises(error, match=message):
        plain(**settings).next()


def test_messages(opened):
    with pytest.raises(TargetError, match="expected a TensorDictModule"):
        plain(policy=act)
    made = opened(plain(policy=constant_policy()))
    for arguments, message in [
        ({"worker_ids": 1}, "for all workers"),
        ({"model_id": "critic"}, "leave out worker_ids, model_id"),
        ({"weights": {}, "policy": constant_policy()}, "got them twice"),
        ({"weights": {"module.weight": torch.zeros(2)}}, r"module.weight: expected \(1,\), got"),
        ({"policy": planted_policy()}, "got nothing"),
        ({"weights": 3}, "expected a module, a TensorDict or a state dict, got int"),
    ]:
        with pytest.raises(SettingError, match=message):
            made.update_policy_weights_(**arguments)
    with pytest.raises(SettingError, match="pass seed"):
        made.set_seed(3)
    with pytest.raises(SettingError, match="hotloop benchmark"):
        made.enable_profile()
    with pytest.raises(SettingError, match="close_env=False"):
        made.shutdown(close_env=False)


def test_hooks_run_around_every_batch(opened):
    seen = []
    made = opened(
        plain(
            total_frames=20,
            pre_collect_hook=lambda: seen.append("before"),
            post_collect_hook=lambda batch: seen.append(batch.numel()),
        )
    )
    assert len(list(made)) == 2
    assert seen == ["before", 10, "before", 10]
