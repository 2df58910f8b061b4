"""A Tianshou collector whose policy acts in fragment workers, beside their own envs.

`FragmentCollector` of this package steps envs from the trainer's process and fills the buffer once
a fragment; here the policy is copied to the workers, and whole fragments arrive.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.algorithm.algorithm_base import Algorithm, Policy
from tianshou.config import ENABLE_VALIDATION
from tianshou.data import (
    Batch,
    CachedReplayBuffer,
    CollectStats,
    ReplayBufferManager,
    to_numpy,
)
from tianshou.data.collector import BaseCollector, get_stddev_from_dist

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, tree_map
from hotloop.errors import SettingError, TargetError, expect_positive
from hotloop.integrations.actors import OwnGenerators, check_settings, on_cpu
from hotloop.rollout.env_metadata import AnyVectorEnv
from hotloop.rollout.fragments import FragmentCollector

Array = NDArray[Any]
_SPREAD = "pred_dist_std"
# Settings of FragmentCollector that are set here.
_OWN = ("make_envs", "policy", "fragment_steps", "num_workers", "seed", "to_env")
# Settings of Tianshou's own collectors that do not apply, and what there is instead.
_INSTEAD: Mapping[str, str] = {
    "collect_stats_class": "statistics are CollectStats",
    "env": "pass make_envs, which makes the vector env of a worker",
    "on_episode_done_hook": "hooks need FragmentCollector, beside it in this package",
    "on_step_hook": "hooks need FragmentCollector, beside it in this package",
}


class ActorCollector(BaseCollector[CollectStats]):
    """`tianshou.data.BaseCollector` on the workers of a `hotloop.rollout.FragmentCollector`.

    policy: as for `tianshou.data.Collector`; recurrent ones are refused. The workers get its
    newest state before each `collect`: weights, modes, and plain attributes such as the share of
    random actions.
    make_envs: makes the vector env of a worker, of Gymnasium or hotloop. Together the workers have
    as many envs as the buffer has parts. Infos of the envs do not travel.
    buffer: a `VectorReplayBuffer` or another with one part for an env, each with room for
    `fragment_steps`.
    fragment_steps: T; `collect` takes a multiple of T steps of all envs of a worker.
    work_ahead: whether workers go on by the older policy while the learner computes; see
    `FragmentCollector`. For off-policy algorithms only: Tianshou's on-policy ones take what they
    get for actions of the newest policy.
    settings: further ones of `FragmentCollector`, such as backend, restarts, timeout_s.

    Statistics are those of whole episodes, also if they are longer than the buffer. Where steps
    were lost with a worker, the episode in the buffer is cut there as a truncated one.

    Raises: SettingError for settings, TargetError for policies, that do not fit.
    """

    def __init__(
        self,
        policy: Policy | Algorithm[Any, Any],
        make_envs: Callable[[], AnyVectorEnv],
        buffer: ReplayBufferManager,
        *,
        fragment_steps: int,
        num_workers: int = 2,
        seed: int = 0,
        exploration_noise: bool = False,
        raise_on_nan_in_buffer: bool = ENABLE_VALIDATION,
        work_ahead: bool = False,
        **settings: Any,
    ) -> None:
        expect_positive("fragment_steps", fragment_steps)
        expect_positive("num_workers", num_workers)
        check_settings(settings, _OWN, _INSTEAD)
        _check_buffer(buffer, fragment_steps, num_workers)
        acting = policy.policy if isinstance(policy, Algorithm) else policy
        self._actors: FragmentCollector | None = None  # started by the first `collect`
        self._resets = 0
        self._fragment_steps, self._num_workers = fragment_steps, num_workers
        self._make_envs, self._seed = make_envs, seed
        self._settings = {"work_ahead": work_ahead, **settings}
        super().__init__(
            policy,
            cast(Any, _EnvsElsewhere(buffer.buffer_num, acting.action_space)),
            buffer,
            exploration_noise=exploration_noise,
            raise_on_nan_in_buffer=raise_on_nan_in_buffer,
        )

    def reset_env(self, gym_reset_kwargs: dict[str, Any] | None = None) -> tuple[Array, Array]:
        """End the episodes under way: the next `collect` starts the workers anew, other seeds.

        Returns: no observations, for these stay in the workers: two empty arrays.
        Raises: SettingError for arguments of the envs' `reset`.
        """
        if gym_reset_kwargs:
            raise SettingError(
                f"gym_reset_kwargs: expected none, got {gym_reset_kwargs}: envs are reset in the "
                "workers; make them as they should be in make_envs"
            )
        if self._actors is not None:
            self._actors.close()
            self._actors = None
            self._resets += 1
        return np.zeros(0), np.zeros(0)

    def close(self) -> None:
        """End all workers and close their envs. Idempotent."""
        if self._actors is not None:
            self._actors.close()
        self._is_closed = True

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        """Collect fragments of `n_step` steps. Raises: SettingError for anything else."""
        del gym_reset_kwargs  # `reset_env` had them
        if n_episode is not None or n_step is None:
            raise SettingError(
                f"n_episode: expected n_step, got n_episode={n_episode}: the first episodes to end "
                "would be the short ones; collect n_step steps, and test policies with Tianshou's "
                "own Collector"
            )
        if random or render:
            raise SettingError(
                f"collect: expected no random and no render, got random={random}, render={render}: "
                "the policy acts in the workers; let the policy explore, and render in a test env"
            )
        size = self._fragment_steps * self.env_num // self._num_workers
        count, rest = divmod(n_step, size)
        if rest:
            raise SettingError(
                f"n_step: expected a multiple of {size}, {self._fragment_steps} steps of the "
                f"{self.env_num // self._num_workers} envs of a worker, got {n_step}"
            )
        stats = CollectStats()
        for fragment in self._newest().collect(count):
            self._add(fragment, stats)
        self.collect_step += stats.n_collected_steps
        self.collect_episode += stats.n_collected_episodes
        return stats

    def _newest(self) -> FragmentCollector:
        """Return the workers, with the newest policy."""
        if self._is_closed:
            raise SettingError("collect: expected an open collector, got one that is closed")
        acting = _Acting(on_cpu(self.policy), self.exploration_noise)
        if self._actors is None:
            seed = self._seed
            if self._resets:
                seed = int(np.random.SeedSequence((seed, self._resets)).generate_state(1)[0])
            self._actors = FragmentCollector(
                self._make_envs,
                acting,
                fragment_steps=self._fragment_steps,
                num_workers=self._num_workers,
                seed=seed,
                to_env=_ToEnv(on_cpu(self.policy)),
                **self._settings,
            )
        else:
            self._actors.update(acting)
        return self._actors

    def _add(self, fragment: Fragment, stats: CollectStats) -> None:
        """Add a fragment to the buffer, in one call, and to the statistics."""
        if fragment.spec.envs * self._num_workers != self.env_num:
            raise SettingError(
                f"make_envs: expected {self.env_num // self._num_workers} envs a worker, for "
                f"{self._num_workers} workers and a buffer of {self.env_num} parts, got "
                f"{fragment.spec.envs}"
            )
        terminated, truncated = fragment.terminated, fragment.truncated.copy()
        # The step before one that is none, where no episode ended: its env was lost there.
        breaks = ~fragment.valid
        truncated[:-1] |= breaks[1:] & ~(terminated | truncated)[:-1]
        self._cut(fragment.env_ids[breaks[0] | fragment.follows_reset])

        valid = fragment.valid
        batch = Batch(
            obs=tree_map(lambda values: values[valid], fragment.obs),
            act=tree_map(lambda values: values[valid], fragment.action),
            rew=fragment.reward[valid],
            terminated=terminated[valid],
            truncated=truncated[valid],
            done=(terminated | truncated)[valid],
            obs_next=tree_map(lambda values: values[valid], fragment.all_next_obs),
        )
        env_ids = np.broadcast_to(fragment.env_ids, valid.shape)[valid]
        self.buffer.add(cast(Any, batch), cast(Any, env_ids))

        stats.n_collected_steps += len(env_ids)
        stats.n_collected_episodes += fragment.episodes
        returns = fragment.episode_returns
        stats.returns = np.concatenate([stats.returns.reshape(-1, *returns.shape[1:]), returns])
        stats.lens = np.concatenate([stats.lens, fragment.episode_lengths]).astype(int)
        if _SPREAD in fragment.extras:
            spread = fragment.extras[_SPREAD][valid]
            before = stats.pred_dist_std_array
            both = spread if before is None else np.concatenate([before, spread])
            stats.pred_dist_std_array = both

    def _cut(self, env_ids: Array) -> None:
        """Cut episodes under way in the buffer: what comes next of their envs does not follow."""
        buffer = cast(ReplayBufferManager, self.buffer)
        for env_id in env_ids.tolist():
            part = buffer.buffers[env_id]
            part._ep_return, part._ep_len, part._ep_start_idx = 0.0, 0, part._insertion_idx
            if len(part):
                last = buffer.last_index[env_id]
                buffer.truncated[last] |= not buffer.done[last]
                buffer.done[last] = True


class _EnvsElsewhere:
    """What `BaseCollector` asks of its vector env, for envs in fragment workers."""

    def __init__(self, num: int, action_space: gymnasium.Space[Any]) -> None:
        self.num, self.action_space = num, action_space

    def __len__(self) -> int:
        return self.num


class _Acting:
    """A Tianshou policy as a policy of `FragmentCollector`: arrays in and out."""

    def __init__(self, policy: Policy, exploration_noise: bool) -> None:
        self.policy, self.exploration_noise = policy, exploration_noise
        self.generators = OwnGenerators()

    def seed(self, seed: int) -> None:
        """Draw from generators of this seed from now on."""
        self.generators.seed(seed)

    def __call__(self, obs: Tree) -> tuple[Array, dict[str, Array]]:
        """Return actions (b, …) before they are mapped, and the spread of their distribution."""
        batch = cast(Any, Batch(obs=obs, info=Batch()))
        with torch.no_grad(), self.generators.in_use():
            out = self.policy(batch)
            action = to_numpy(out.act)
            if self.exploration_noise:
                action = self.policy.add_exploration_noise(action, batch)
        if out.get("state") is not None or len(out.get("policy", Batch()).get_keys()):
            raise TargetError(
                "policy: expected one without states or entries for the buffer, got one with; "
                "collect with hotloop.integrations.tianshou.FragmentCollector"
            )
        if (dist := out.get("dist")) is None:
            return action, {}
        return action, {_SPREAD: np.atleast_2d(to_numpy(get_stddev_from_dist(dist)))}


class _ToEnv:
    """Maps actions of a policy to those of its envs, as Tianshou's collectors do."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, action: Tree) -> Tree:
        return self.policy.map_action(action)


def _check_buffer(buffer: ReplayBufferManager, fragment_steps: int, num_workers: int) -> None:
    """Refuse a buffer that fragments cannot be added to as they are."""
    if not isinstance(buffer, ReplayBufferManager) or isinstance(buffer, CachedReplayBuffer):
        raise SettingError(
            "buffer: expected one with a part for each env, such as VectorReplayBuffer, got "
            f"{type(buffer).__qualname__}"
        )
    if buffer.buffer_num % num_workers:
        raise SettingError(
            f"buffer: expected as many parts as all {num_workers} workers have envs, a multiple of "
            f"{num_workers}, got {buffer.buffer_num}"
        )
    room = min(int(part.maxsize) for part in buffer.buffers)
    if room < fragment_steps:
        raise SettingError(
            f"buffer: expected room for the {fragment_steps} steps of a fragment in each part, got "
            f"{room}; make the buffer larger or fragments shorter"
        )
