"""A collector of TorchRL whose policy acts in fragment workers, beside their own envs.

    from hotloop.integrations.torchrl import ActorCollector

    make_envs = partial(make_vec, "CartPole-v1", 16, backend="serial", autoreset_mode="same_step")
    collector = ActorCollector(
        make_envs, policy, fragment_steps=64, frames_per_batch=2048, total_frames=100_000
    )
    for batch in collector:  # a TensorDict of batch size [B, T]
        ...
        collector.update_policy_weights_()

Losses, advantages and replay buffers of TorchRL take the batches as those of its own collectors.
What differs: envs are those of Gymnasium and hotloop, many to a worker; no message is sent for a
step, but one for a fragment; infos of the envs do not travel.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import tree_map
from hotloop.errors import SettingError, TargetError, expect_positive
from hotloop.rollout.env_metadata import AnyVectorEnv
from hotloop.rollout.fragments import FragmentCollector

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
    from tensordict.nn import TensorDictModuleBase
    from torchrl.collectors import BaseCollector
    from torchrl.envs.utils import ExplorationType
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"hotloop.integrations.torchrl needs TorchRL ({error.name} is missing): "
        "pip install 'hotloop[torchrl]'",
        name=error.name,
    ) from error

from hotloop.integrations.actors import check_settings, on_cpu
from hotloop.integrations.tensordict_policy import (
    ONE_HOT,
    SEPARATOR,
    TensorDictPolicy,
    observations,
)

__all__ = ["ActorCollector"]

Array = NDArray[Any]

# Settings of TorchRL's own collectors that do not apply, and what there is instead.
_INSTEAD: Mapping[str, str] = {
    "create_env_fn": "pass make_envs, which makes the vector env of a worker",
    "device": "call .to(device) on the batches",
    "env_device": "envs and policies of the workers are on the CPU",
    "init_random_frames": "collect the first frames with a policy that acts at random",
    "max_frames_per_traj": "limit episodes with gymnasium.wrappers.TimeLimit in make_envs",
    "num_collectors": "set num_workers",
    "policy_device": "envs and policies of the workers are on the CPU",
    "policy_factory": "pass the policy itself",
    "postproc": "apply it to the batches",
    "replay_buffer": "extend the replay buffer with the batches",
    "reset_at_each_iter": "episodes go on from one batch to the next",
    "split_trajs": "apply torchrl.collectors.utils.split_trajectories to the batches",
    "storing_device": "call .to(device) on the batches",
    "sync": "set work_ahead",
    "traj_format": "batches have the shape [B, T]",
    "trajs_per_batch": "batches have a fixed number of frames",
    "trajs_per_write": "extend a replay buffer with the batches",
    "weight_sync_schemes": "call update_policy_weights_",
    "weight_updater": "call update_policy_weights_",
}
# Settings of FragmentCollector that are set here.
_OWN = ("make_envs", "policy", "fragment_steps", "work_ahead", "dtypes")


class ActorCollector(BaseCollector):  # type: ignore[misc]  # TorchRL has no annotations
    """`torchrl.collectors.BaseCollector` on the workers of a `hotloop.rollout.FragmentCollector`.

    make_envs: makes the vector env of a worker, of Gymnasium or hotloop, whose envs are reset in
    the step in which they end, or by the caller (autoreset modes "same_step" and "disabled").
    policy: a TensorDictModule from observations to "action", such as a `ProbabilisticActor`; it is
    copied to the workers, and everything that it writes is in the batches. Observations are
    "observation", or the nested keys of a Dict.
    fragment_steps: T. frames_per_batch: a multiple of T times the envs of a worker. total_frames:
    after so many the collector ends; -1: never.
    one_hot: whether the policy's actions are one-hot, as those of TorchRL's envs are by default;
    the envs then get their index.
    work_ahead: whether workers go on by older weights while the learner computes; see
    `FragmentCollector`. Without it the newest policy acts, as in TorchRL's `Collector`.
    exploration_type: how the policy acts in the workers.
    settings: further ones of `FragmentCollector`, such as num_workers, backend, seed, restarts.

    Batches: [B, T], the rows those of the fragments, so that consecutive steps of an env are in
    one row. ("next", …) holds the true next observations also where an episode ended. Rewards are
    float32, unless `dtypes` says otherwise. A fragment in which envs were lost with their process
    is dropped; `dropped` counts them.

    Raises: SettingError for settings, TargetError for envs and policies, that do not fit.
    """

    def __init__(
        self,
        make_envs: Callable[[], AnyVectorEnv],
        policy: TensorDictModuleBase,
        *,
        fragment_steps: int,
        frames_per_batch: int,
        total_frames: int = -1,
        one_hot: bool = False,
        work_ahead: bool = False,
        exploration_type: ExplorationType = ExplorationType.RANDOM,
        dtypes: Mapping[str, Any] | None = None,
        pre_collect_hook: Callable[[], None] | None = None,
        post_collect_hook: Callable[[TensorDictBase], None] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(pre_collect_hook=pre_collect_hook, post_collect_hook=post_collect_hook)
        check_settings(settings, _OWN, _INSTEAD)
        expect_positive("fragment_steps", fragment_steps)
        expect_positive("frames_per_batch", frames_per_batch)
        if total_frames != -1:
            expect_positive("total_frames", total_frames)
        if not isinstance(policy, TensorDictModuleBase):
            raise TargetError(
                "policy: expected a TensorDictModule from observations to an action, got "
                f"{type(policy).__qualname__}; wrap it in tensordict.nn.TensorDictModule"
            )
        self.policy = policy
        self.total_frames = total_frames
        self.frames_per_batch = self.requested_frames_per_batch = frames_per_batch
        self.dropped = 0
        self.closed = False
        self._frames, self._iter = 0, -1  # read by `stats` of TorchRL
        self._one_hot = one_hot
        self._trajectories: dict[int, int] = {}  # number of the one under way, by env
        self._next_trajectory = 0
        self._actors = FragmentCollector(
            make_envs,
            TensorDictPolicy(on_cpu(policy), one_hot, exploration_type),
            fragment_steps=fragment_steps,
            work_ahead=work_ahead,
            dtypes={"reward": np.float32, **(dtypes or {})},
            **settings,
        )

    def iterator(self) -> Iterator[TensorDictBase]:
        """Yield a batch after the other, until there are `total_frames`.

        Raises: what an env or the policy raises in a worker; WorkerError if a worker died and no
        restart is left.
        """
        while self.total_frames < 0 or self._frames < self.total_frames:
            self._iter += 1
            if self.pre_collect_hook is not None:
                self.pre_collect_hook()
            fragments = self._collect()
            batch = torch.cat([self._batch(fragment) for fragment in fragments])
            self._frames += batch.numel()
            if self.post_collect_hook is not None:
                self.post_collect_hook(batch)
            yield batch

    @property
    def policy_version(self) -> int:
        """How often the workers were sent weights."""
        return self._actors.policy_version

    def update_policy_weights_(
        self,
        policy_or_weights: Any = None,
        *,
        weights: Any = None,
        policy: Any = None,
        worker_ids: None = None,
        model_id: str | None = None,
        weights_dict: None = None,
    ) -> None:
        """Send weights to all workers; they act in the fragments that are begun afterwards.

        policy_or_weights, weights, policy: a module of the same shape, or its weights as a
        TensorDict or a state dict; None takes those of the policy that the collector was made with.
        Raises: SettingError for weights of another policy, for two of them, and for some workers
        or models only.
        """
        if worker_ids is not None or weights_dict is not None or model_id not in (None, "policy"):
            raise SettingError(
                "update_policy_weights_: expected the weights of one policy for all workers, got "
                f"worker_ids={worker_ids!r}, model_id={model_id!r}; leave out worker_ids, model_id "
                "and weights_dict"
            )
        given = [one for one in (policy_or_weights, weights, policy) if one is not None]
        if len(given) > 1:
            raise SettingError("update_policy_weights_: expected weights once, got them twice")
        arrays = _arrays(given[0] if given else self.policy)
        expected = self.policy.state_dict()
        for name in [*expected, *arrays]:
            one, other = expected.get(name), arrays.get(name)
            if one is None or other is None or tuple(one.shape) != other.shape:
                raise SettingError(
                    f"update_policy_weights_: {name}: expected "
                    f"{'nothing' if one is None else tuple(one.shape)}, got "
                    f"{'nothing' if other is None else other.shape}; send the weights of a policy "
                    "of the same shape"
                )
        self._actors.update(arrays)

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Refuse: workers are seeded when they start. Raises: SettingError."""
        raise SettingError(
            "set_seed: expected the seed when the collector is made, got "
            f"set_seed({seed}, static_seed={static_seed}) afterwards; pass seed=… to ActorCollector"
        )

    def state_dict(self) -> "OrderedDict[str, Any]":
        """Return the weights of the policy and the numbers of frames and batches so far."""
        return OrderedDict(
            policy_state_dict=self.policy.state_dict(), frames=self._frames, iter=self._iter
        )

    def load_state_dict(self, state_dict: "OrderedDict[str, Any]") -> None:
        """Go on from `state_dict`: workers get the weights. Their episodes go on as they are."""
        self.policy.load_state_dict(state_dict["policy_state_dict"])
        self._frames, self._iter = state_dict["frames"], state_dict["iter"]
        self.update_policy_weights_()

    def enable_profile(self, **_: Any) -> None:
        """Refuse: the profiler would not see the workers. Raises: SettingError."""
        raise SettingError(
            "enable_profile: expected nothing, for a profiler here does not see the workers; "
            "measure the script with hotloop benchmark"
        )

    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """End all workers and close their envs. Idempotent; batches stay valid.

        raise_on_error: nothing is raised that a worker raises while it ends, in either case.
        Raises: SettingError for a timeout, which is fixed, and for envs that are to stay open.
        """
        if timeout is not None or not close_env:
            raise SettingError(
                "shutdown: expected no timeout, and close_env=True, for envs end with their "
                f"workers within seconds, got timeout={timeout}, close_env={close_env}"
            )
        del raise_on_error
        self.closed = True
        self._actors.close()

    # --- fragments -----------------------------------------------------------------------------

    def _collect(self) -> list[Fragment]:
        """Collect fragments for a batch; the first one says how many it takes."""
        fragments: list[Fragment] = []
        missing = 1
        while missing:
            for fragment in self._actors.collect(missing):
                if fragment.spec.final_in_rows:
                    raise TargetError(
                        "make_envs: expected envs that are reset in the step in which they end, "
                        "got autoreset_mode='next_step', whose resets are steps of a batch; make "
                        "them with autoreset_mode='same_step'"
                    )
                if fragment.valid.all():
                    fragments.append(fragment)
                else:
                    self.dropped += 1
                    for env_id in fragment.env_ids.tolist():
                        self._trajectories.pop(env_id, None)
                size = fragment.spec.steps * fragment.spec.envs
                count, rest = divmod(self.frames_per_batch, size)
                if rest:
                    raise SettingError(
                        f"frames_per_batch: expected a multiple of {size} frames, "
                        f"{fragment.spec.steps} steps of {fragment.spec.envs} envs of a worker, "
                        f"got {self.frames_per_batch}"
                    )
            missing = count - len(fragments)
        return fragments

    def _batch(self, fragment: Fragment) -> TensorDict:
        """Return a fragment as TorchRL has it, in memory of its own."""
        batch_size = (fragment.spec.envs, fragment.spec.steps)
        over = fragment.terminated | fragment.truncated
        reward = fragment.reward if fragment.reward.ndim > 2 else fragment.reward[..., None]
        ends = {
            "done": _rows(over[..., None]),
            "terminated": _rows(fragment.terminated[..., None]),
            "truncated": _rows(fragment.truncated[..., None]),
        }
        batch = TensorDict(
            {
                **observations(tree_map(_rows, fragment.obs)),
                **{name: np.zeros_like(flags) for name, flags in ends.items()},
                "collector": TensorDict(
                    {"traj_ids": self._trajectory_ids(fragment, over)}, batch_size
                ),
                "next": TensorDict(
                    {
                        **observations(tree_map(_rows, fragment.all_next_obs)),
                        **ends,
                        "reward": _rows(reward),
                    },
                    batch_size,
                ),
            },
            batch_size,
        )
        extras = dict(fragment.extras)
        batch["action"] = torch.from_numpy(_rows(extras.pop(ONE_HOT, fragment.action)))
        for name, values in extras.items():
            batch[tuple(name.split(SEPARATOR))] = torch.from_numpy(_rows(values))
        return batch

    def _trajectory_ids(self, fragment: Fragment, over: NDArray[np.bool_]) -> Array:
        """Return the numbers of the trajectories, (B, T); episodes keep theirs over batches."""
        ids = np.zeros(over.T.shape, np.int64)
        for b, env_id in enumerate(fragment.env_ids.tolist()):
            if fragment.follows_reset:
                self._trajectories.pop(env_id, None)
            ends = np.flatnonzero(over[:, b]) + 1
            bounds = [0, *ends.tolist(), len(over)]
            for start, stop in itertools.pairwise(bounds):
                if start == stop:
                    continue  # an episode ended in the last step
                if start or env_id not in self._trajectories:
                    self._trajectories[env_id] = self._next_trajectory
                    self._next_trajectory += 1
                ids[b, start:stop] = self._trajectories[env_id]
            if over[-1, b]:
                del self._trajectories[env_id]
        return ids


def _arrays(policy_or_weights: Any) -> dict[str, Array]:
    """Return weights as arrays, by their names in the state dict of the module."""
    if isinstance(policy_or_weights, torch.nn.Module):
        policy_or_weights = policy_or_weights.state_dict()
    elif isinstance(policy_or_weights, TensorDictBase):
        policy_or_weights = policy_or_weights.flatten_keys(".")
    elif not isinstance(policy_or_weights, Mapping):
        raise SettingError(
            "update_policy_weights_: expected a module, a TensorDict or a state dict, got "
            f"{type(policy_or_weights).__qualname__}"
        )
    return {
        name: values.detach().cpu().numpy()
        for name, values in policy_or_weights.items()
        if isinstance(values, torch.Tensor)
    }


def _rows(values: Array) -> Array:
    """Return (T, B, …) as (B, T, …), in memory of its own."""
    return np.array(np.swapaxes(values, 0, 1), order="C")
