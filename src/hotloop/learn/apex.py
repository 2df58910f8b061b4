"""Ape-X (Horgan et al. 2018): many actors explore, one learner draws from a prioritised replay.

Settings, and what happens with a fragment: its windows of n steps go into the replay, with the
errors that the actor's own values give them; then the learner draws as many transitions as the
replay ratio asks for. How fragments come from the actors stands in `actors.py`, acting in
`policies/explorer.py`, the replay in `hotloop.rollout.replay`, or in `hotloop.rollout.shards` where
other processes hold it.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Layout, Tree, tree_map
from hotloop.errors import CheckpointError, SettingError, ShapeError, expect_whole
from hotloop.learn.actors import ActorSettings, AsynchronousLearner
from hotloop.learn.learner import Array, loops_of, next_values, policy_for
from hotloop.learn.policies.actor import Actor
from hotloop.learn.policies.explorer import action_values, epsilons, single_choice
from hotloop.learn.q_loss import DrawnBatch, Errors, QLoss
from hotloop.learn.settings import PLAIN
from hotloop.loop import stage
from hotloop.ops import n_step_windows
from hotloop.rollout.replay import Drawn, PrioritisedReplay, Replay, Transitions
from hotloop.rollout.shard import ShardSettings
from hotloop.rollout.shard_pools import expect_shard_backend, room_for, shard_pool
from hotloop.rollout.shards import ShardedReplay

_LOG = logging.getLogger("hotloop")
# Of the envs, those that explore least: their returns are shown.
SHOWN_SHARE = 0.25
# Batches that are drawn ahead from shards. The first brings nearly all of the gain, and on Ray the
# second a little more (benchmarks/replay_shards.py).
PREFETCH = 2


@dataclass(frozen=True)
class ApexSettings(ActorSettings):
    """Everything that a run of Ape-X depends on; the defaults are tuned for CartPole-v1.

    Raises: SettingError for settings that do not fit.
    """

    algorithm: ClassVar[str] = "apex"

    total_steps: int = 400_000
    """Training stops here if the env is not solved before, in env steps."""
    num_envs: int = 16
    """Envs of all actors together."""
    fragment_steps: int = 20
    """Steps of every env in a fragment (T)."""
    max_lag: int = 100
    """Fragments whose policy is more updates old than this are dropped."""
    learning_rate: float = 2e-3
    """Adam's step size at the start."""
    anneal: bool = False
    """Whether the learning rate falls linearly, to nothing at `total_steps`."""
    gamma: float = 0.99
    """Discount a step."""
    n_step: int = 5
    """Rewards of a transition, before the value of the observation arrived at."""
    replay_size: int = 50_000
    """Transitions that are kept, the newest ones; in all shards together."""
    replay_shards: int = 0
    """Processes (with backend ray: actors) that hold the replay; 0: the learner itself."""
    prefetch: int | None = None
    """Batches drawn ahead, by the priorities of then; None takes 2 from shards, without them 0."""
    restarts: int = 3
    """How many actors that died may be replaced, and as many shards of the replay."""
    replay_ratio: float = 4.0
    """Transitions drawn for each env step: more learn more from each, and hold the actors back."""
    learn_after: int = 1_000
    """Transitions in the replay before anything is learned."""
    batch_size: int = 128
    """Transitions of one optimiser step."""
    target_every: int = 100
    """Optimiser steps between two copies of the parameters into the target network."""
    epsilon: float = 0.4
    """Share of random actions in the env that explores most, ε."""
    epsilon_spread: float = 7.0
    """The env that explores least has ε to the power of one more than this; 0: all alike."""
    priority_exponent: float = 0.6
    """α: transitions are drawn by |error|^α, 0: all alike."""
    importance_exponent: float = 0.4
    """β: how far weights correct for that, from 0, not at all, to 1."""
    double: bool = True
    """Whether the online network chooses the action that the target network values."""
    dueling: bool = True
    """Whether Q is the sum of a value and of advantages, each with a network of its own."""
    save_replay: bool = False
    """Whether checkpoints hold the replay; without it, a resumed training fills one anew."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learn_after > self.replay_size:
            raise SettingError(
                f"apex: learn_after: expected at most replay_size, {self.replay_size}, got "
                f"{self.learn_after}: the replay would never hold so many"
            )
        if self.normalise_values and self.compiled != PLAIN:
            raise SettingError(
                "apex: compiled: expected 'plain' with normalise_values, whose targets are made by "
                f"the host, got {self.compiled!r}; leave one of the two out"
            )
        expect_whole("apex: prefetch", self.prefetch, 0)
        if self.replay_shards:
            self._expect_shards()
        elif self.prefetch:
            raise SettingError(
                f"apex: prefetch: expected 0 without replay_shards, got {self.prefetch}: the "
                "learner draws from its own memory at once; leave it out, or set replay_shards"
            )

    def _expect_shards(self) -> None:
        try:
            expect_shard_backend(self.backend)
        except SettingError as error:
            raise SettingError(f"apex: {error}") from None
        rest = self.replay_size % self.replay_shards
        if rest:
            raise SettingError(
                f"apex: replay_size: expected a multiple of replay_shards, {self.replay_shards}, "
                f"as all shards are equally large, such as "
                f"{self.replay_size - rest + self.replay_shards}, got "
                f"{self.replay_size}"
            )

    @property
    def batches_ahead(self) -> int:
        """Batches that are drawn ahead of their update."""
        if self.prefetch is None:
            return PREFETCH if self.replay_shards else 0
        return self.prefetch


@dataclass
class Counts:
    """What is counted from one update to the next."""

    owed: float = 0.0  # optimiser steps that the replay ratio still asks for
    optimizer_steps: int = 0


class Apex(AsynchronousLearner):
    """The learner; `iterate` takes a fragment, puts it into the replay, and learns.

    The stages of learning are insert, draw, update and set priorities.
    """

    settings: ApexSettings
    settings_type = ApexSettings
    free_parts = ("replay",)

    def __init__(self, settings: ApexSettings) -> None:
        super().__init__(settings)
        try:
            self.target = policy_for(settings, self.observation_space, self.action_space)
            self.target.flat.data.copy_(self.policy.flat.data)
            self.replay = self._made_replay()
        except BaseException:
            super().close()
            raise
        first = single_choice(self.policy.actions).start
        self.q_loss = QLoss(self.policy, self.target, first, settings.dueling, settings.double)
        self.counts = Counts()
        self.insert = stage("insert", self._insert, effect="effectful")
        # What a shard was asked for cannot be put back.
        self.draw = stage(
            "draw", self._draw, effect="effectful" if settings.replay_shards else "stateful"
        )
        self.update = stage("update", self._update, effect="stateful")
        self.set_priorities = stage("set priorities", self.replay.set_errors, effect="effectful")

    def _made_replay(self) -> Replay:
        s = self.settings
        row_bytes = _row_bytes(self.observation_space, self.policy.obs_dtype)
        _expect_room(s, row_bytes)
        if not s.replay_shards:
            return PrioritisedReplay(s.replay_size, exponent=s.priority_exponent)
        capacity = s.replay_size // s.replay_shards
        settings = ShardSettings(capacity, s.priority_exponent, capacity * row_bytes)
        return ShardedReplay(
            shard_pool(s.backend, settings),
            s.replay_shards,
            settings,
            prefetch=s.batches_ahead,
            restarts=s.restarts,
        )

    def actor(self, seed: int) -> Actor:
        """What acts for this learner: the best action, or with each env's own ε any."""
        s = self.settings
        share = epsilons(s.num_envs, s.epsilon, s.epsilon_spread)
        return self.policy.explorer(seed, dueling=s.dueling, share=share)

    @property
    def batches(self) -> int:
        """Optimiser steps of an iteration, about."""
        s = self.settings
        steps = s.batch_fragments * s.batch_steps / s.num_actors
        return max(1, round(steps * s.replay_ratio / s.batch_size))

    @property
    def state(self) -> list[object]:
        """What an iteration changes, as its `Loop` declares it; without the replay.

        What inserts into it is never left out, and need not be put back.
        """
        return [*super().state, self.target, self.counts]

    # --- learning ----------------------------------------------------------------------------

    def learn(self, fragments: Sequence[Fragment]) -> bool:
        """Put fragments into the replay, and learn as often as the replay ratio asks for."""
        s = self.settings
        for fragment in fragments:
            self.insert(fragment)
            self.counts.owed += s.replay_ratio * fragment.env_steps / s.batch_size
        before = self.counts.optimizer_steps
        if len(self.replay) < s.learn_after:
            self.counts.owed = 0.0
        for drawn, moved in self.transfer.ahead(self._draws(), self._arrays):
            self.set_priorities(drawn.number, self.update(drawn, moved))
        return self.counts.optimizer_steps > before

    def _draws(self) -> Iterator[Drawn]:
        """Draw as many batches as are owed."""
        while self.counts.owed >= 1:
            drawn = self.draw()
            if drawn is None:  # all was lost with its shards
                return
            self.counts.owed -= 1
            yield drawn

    def _insert(self, fragment: Fragment) -> None:
        """Add the windows of a fragment, with the errors of the values that its actor had."""
        f, s = fragment, self.settings
        best, q = self.values(f.extras["best"]), self.values(f.extras["q"])
        arrived = next_values(f, best, self.value_of(f.last_obs), self.value_of)
        windows = n_step_windows(
            f.reward, f.terminated, f.truncated, gamma=s.gamma, n=s.n_step, valid_t=f.valid
        )
        t, b = np.nonzero(windows.steps)
        end = t + windows.steps[t, b] - 1
        transitions = Transitions(
            obs=tree_map(lambda x: x[t, b], f.obs),
            action=f.action[t, b],
            reward=windows.reward[t, b].astype(np.float32),
            discount=windows.discount[t, b].astype(np.float32),
            next_obs=tree_map(lambda x: x[end, b], f.all_next_obs),
        )
        error = transitions.reward + transitions.discount * arrived[end, b] - q[t, b]
        if not np.isfinite(error).all():
            raise self._loss_error("finite rewards", "some that are not", {"reward": f.reward})
        self.replay.add(transitions, error)
        self.observe(f.obs, f.valid)

    def _draw(self) -> Drawn | None:
        s = self.settings
        return self.replay.draw(s.batch_size, self.rng, beta=s.importance_exponent)

    def _arrays(self, drawn: Drawn) -> Tree:
        """What an update takes: a `DrawnBatch` of arrays, unnamed."""
        obs, action, reward, discount, next_obs = drawn.transitions
        prepared, weight = self.policy.prepared, drawn.weight.astype(np.float32)
        return prepared(obs), action, reward, discount, prepared(next_obs), weight

    def _update(self, drawn: Drawn, moved: Any = None) -> Array:
        """One step down the loss of what was drawn; returns the errors y − Q, (n,).

        moved: what was drawn, on the device, if it was brought there before.
        """
        s = self.settings
        self.set_learning_rate(s.learning_rate * self.left())
        batch = DrawnBatch(*(self.transfer.move(self._arrays(drawn)) if moved is None else moved))
        target = self._normalised_targets(batch) if s.normalise_values else None
        loss, q, error = self.step(batch, {}, target)
        self.counts.optimizer_steps += 1
        if self.counts.optimizer_steps % s.target_every == 0:
            self.target.flat.data.copy_(self.policy.flat.data)
        self._update_figures = lambda: {
            "td_loss": float(loss),
            "q_values": float(q.mean()),
            "weight_mean": float(drawn.weight.mean()),
            **self.replay.figures(),
        }
        errors: Array = error.cpu().numpy()
        return errors

    def loss(
        self, batch: DrawnBatch, numbers: Mapping[str, Any], computed: Tensor | None
    ) -> tuple[Tensor, Errors]:
        """The loss of `q_loss.py`; computed: y, if it is known."""
        del numbers
        return self.q_loss(batch, computed)

    def _normalised_targets(self, batch: DrawnBatch) -> Tensor:
        """What Q is to become, in the units of the network; counted into their moments."""
        with self.step.computing():
            best = self.q_loss.best(batch.next_obs)
        value = self.values(best.cpu().numpy())
        return_ = batch.reward.cpu().numpy() + batch.discount.cpu().numpy() * value
        target = self.value_targets(return_, np.ones(len(return_), np.bool_))
        return torch.from_numpy(target).to(batch.reward)

    def value_of(self, obs: Tree) -> Array:
        """The values (B,) of observations (B, ...): those of their best actions."""
        q: Array = action_values(*self.policy.outputs(obs), dueling=self.settings.dueling)
        return self.values(q.max(1))

    def shown_returns(self, fragment: Fragment) -> list[float]:
        """Returns of the episodes of the envs that explore least."""
        first = int((1 - SHOWN_SHARE) * self.settings.num_envs)
        endings = fragment.endings
        shown = ~endings["lost"] & (fragment.env_ids[endings["b"]] >= first)
        returns: list[float] = endings["return"][shown].tolist()
        return returns

    def close(self) -> None:
        """End all actors, and the shards of the replay. Idempotent."""
        try:
            super().close()
        finally:
            self.replay.close()

    # --- what is saved -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """As that of every learner, with the target network, and the replay if asked for."""
        return {
            **super().state_dict(),
            "target": self.target.flat.detach().cpu().numpy().copy(),
            "counts": asdict(self.counts),
            "replay": self.replay.state_dict() if self.settings.save_replay else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. Raises: CheckpointError, as that of every learner."""
        super().load_state_dict(state)
        self.target.flat.data.copy_(torch.from_numpy(state["target"]))
        self.counts = Counts(**state["counts"])
        if not self.settings.save_replay:
            return
        example = self._no_transitions()
        try:
            self.replay.load_state_dict(state["replay"], example)
        except (ShapeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"state of apex: {error}") from None

    def _no_transitions(self) -> Transitions:
        """No transition, of this env's kind."""
        dtype = self.policy.obs_dtype
        obs = Layout.of(self.observation_space).empty(0)
        if dtype is not None:
            obs = tree_map(lambda array: array.astype(dtype), obs)
        number = np.empty(0, np.float32)
        return Transitions(obs, np.empty(0, self.policy.action_dtype), number, number, obs)


def _row_bytes(space: Any, dtype: Any) -> int:
    """The memory that a transition takes."""
    of_obs = sum(
        int(np.prod(leaf.shape)) * (leaf.dtype if dtype is None else np.dtype(dtype)).itemsize
        for leaf in Layout.of(space).leaves
    )
    return 2 * of_obs + 16  # action, reward and discount


def _expect_room(settings: ApexSettings, row_bytes: int) -> None:
    """Refuse a replay that does not fit into memory, with SettingError."""
    s = settings
    room = room_for(s.backend, s.replay_shards, s.replay_size, row_bytes)
    if room.rows is None:
        _LOG.warning("apex: replay_size: %s: whether it fits was not checked", room.found)
    elif s.replay_size > room.rows:
        raise SettingError(
            f"apex: replay_size: expected at most {room.rows:,}, as a transition takes "
            f"{row_bytes:,} bytes and {room.found}, got {s.replay_size:,}; {room.advice}"
        )


APEX_LOOPS = loops_of(Apex, ApexSettings)
"""`apex:ENV_ID` as a target."""
