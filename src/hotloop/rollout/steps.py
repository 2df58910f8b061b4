"""The collector at the head of everything: a policy, a vector env, and a fragment to fill.

The policy is here, next to the envs. All envs may be stepped at once, or, where the vector env is
split, one group while the policy computes for another; the transitions are the same.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Layout, Tree, tree_map
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, TargetError, expect_positive
from hotloop.loop import stage
from hotloop.rollout.buffering import WINDOW_STEPS, BufferingTrial
from hotloop.rollout.declared import autoreset_mode, frame_skip_of
from hotloop.rollout.trees import copied, joined, layout_of, one, taken

Array = NDArray[Any]
Flags = NDArray[np.bool_]
AnyVectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
Policy = Callable[[Tree], Any]
Allocate = Callable[[FragmentSpec], Fragment]
_BEFORE = -1  # in place of a step
# obs, reward, terminated, truncated, final observations by row, rows lost with a worker
Arrival = tuple[Tree, Array, Flags, Flags, dict[int, Any], Flags | None]


@dataclass
class Counts:
    """What a collector has done since it was made."""

    env_steps: int = 0
    transitions: int = 0
    episodes: int = 0
    frames: int = 0
    fragments: int = 0

    def add(self, fragment: Fragment) -> None:
        """Count a fragment."""
        self.env_steps += fragment.env_steps
        self.transitions += fragment.transitions
        self.episodes += fragment.episodes
        self.frames += fragment.frames
        self.fragments += 1


@dataclass
class _Group:
    """Envs that are stepped together."""

    rows: NDArray[np.int64]
    columns: slice
    obs: Tree = None
    t: int = 0  # the step that comes next
    acted: tuple[Tree, Mapping[str, Array]] = field(default=(None, {}))


class StepCollector:
    """Fragments of `fragment_steps` steps of all envs, one after the other.

    policy: `policy(obs) -> action` or `-> (action, extras)`, extras a dict of arrays (b, ...); the
    observations are those of b envs, all or one group. With Tuple actions always the latter.
    double_buffer: True steps one group of envs while the policy computes for another and needs a
    vector env with splits; False steps all at once; "auto" does both for a moment, within the
    first fragments, and keeps what is faster. `double_buffer` and `reason` say what came out. With
    a policy that draws from one generator the order of its draws depends on it.
    seed: env i is seeded with seed + i. first_env_id: number of the first env, in `env_ids`.
    frame_stack: frames an observation stacks along its first axis, to store each once; 0: none.
    frame_skip: frames the simulator plays in a step; None takes what the envs' spec declares.
    policy_effect: what replacing a call of the policy in an experiment would leave undone, see
    `stage`; "stateful" holds where the loop declares this collector as state.

    Raises: SettingError for settings, and TargetError for envs, that cannot be.
    """

    def __init__(
        self,
        envs: AnyVectorEnv,
        policy: Policy,
        *,
        fragment_steps: int,
        double_buffer: bool | Literal["auto"] = "auto",
        seed: int | None = None,
        first_env_id: int = 0,
        policy_version: int = 0,
        frame_stack: int = 0,
        frame_skip: int | None = None,
        policy_effect: Literal["pure", "stateful", "effectful"] = "stateful",
    ) -> None:
        expect_positive("fragment_steps", fragment_steps)
        expect_positive("frame_skip", frame_skip)
        self.envs, self.policy = envs, policy
        self.fragment_steps = fragment_steps
        self.policy_version = policy_version
        self.counts = Counts()
        self.spec: FragmentSpec | None = None
        self._mode = autoreset_mode(envs)
        self._frame_stack = frame_stack
        self._frame_skip = frame_skip or frame_skip_of(envs)
        self._layout = Layout.of(envs.single_observation_space)
        self._action_layout = Layout.of(envs.single_action_space)
        self._tuple_actions = self._action_layout.keys is None and not self._action_layout.is_leaf
        self._groups: list[_Group] = []
        self._trial: BufferingTrial | None = None
        self.double_buffer: bool | None = None  # None while "auto" still measures
        self.reason = ""
        self._choose_buffering(double_buffer)
        self._env_ids = first_env_id + np.arange(envs.num_envs)
        self._fragment: Fragment | None = None
        self._own: Fragment | None = None
        # Envs that their next step will only reset.
        self._next_step = self._mode == AutoresetMode.NEXT_STEP
        self._ended, self._some_ended = np.zeros(envs.num_envs, np.bool_), False
        self._return = np.zeros(envs.num_envs)
        self._length = np.zeros(envs.num_envs, np.int64)
        self._obs: Tree = envs.reset(seed=seed)[0]
        self._act = stage("policy", self._call_policy, effect=policy_effect)
        self._step = stage("env step", self._step_all, effect="stateful")
        # Sending, and waiting for envs that step elsewhere, cannot be replaced one without the
        # other: what was sent would come all the same.
        self._send = stage("env send", self._send_actions, effect="effectful")
        self._wait = stage("env wait", self._receive, effect="effectful")
        self._store = stage("store", self._write, effect="stateful")

    # --- what a caller does ------------------------------------------------------------------

    def collect(self, allocate: Allocate | None = None) -> Fragment:
        """The next fragment; episodes go on where the one before was cut.

        allocate: makes the fragment to fill. Without it there is one, written over by the next
        call: copy what you keep.
        Raises: what the envs or the policy raise; TargetError for frames that are no stack.
        """
        start = 0
        if self.spec is None:
            self._first_step(allocate)
            start = 1
        else:
            self._fragment = self._allocated(self.spec, allocate)
            self._begin(self._obs)
        fragment = self._fragment
        assert fragment is not None
        self._run(start)
        fragment.tally(self._return, self._length)
        self.counts.add(fragment)
        return fragment

    def update(self, policy: Policy, version: int) -> None:
        """Act by another policy from the next step on; its steps are stamped with `version`."""
        self.policy, self.policy_version = policy, version

    def reset(self, seed: int | None = None) -> None:
        """Start a new episode in every env; those under way are dropped and counted nowhere."""
        self._obs = self.envs.reset(seed=seed)[0]
        self._ended[:], self._return[:], self._length[:] = False, 0, 0
        self._some_ended = False

    # --- the two ways --------------------------------------------------------------------------

    def _run(self, start: int) -> None:
        """Fill the fragment from step `start` on."""
        while start < self.fragment_steps:
            if self._trial is None:
                (self._run_groups if self.double_buffer else self._run_whole)(
                    start, self.fragment_steps
                )
                return
            stop = min(start + WINDOW_STEPS, self.fragment_steps)
            begin = time.perf_counter()
            (self._run_groups if self._trial.way else self._run_whole)(start, stop)
            self._trial.note(time.perf_counter() - begin, stop - start)
            start = stop
            if self._trial.over:
                self.double_buffer, self.reason = self._trial.verdict()
                self._trial = None

    def _run_whole(self, start: int, stop: int) -> None:
        """All envs at once."""
        everyone = slice(None)
        for t in range(start, stop):
            action, extras = self._act(self._obs)
            arrival = self._step(action)
            self._store(t, everyone, action, extras, arrival)
            self._obs = arrival[0]

    def _run_groups(self, start: int, stop: int) -> None:
        """One group steps while the policy computes for another; ends with none under way."""
        for group in self._groups:
            group.t, group.obs = start, taken(self._layout, self._obs, group.columns)
            self._advance(group)
        by_row = {int(group.rows[0]): group for group in self._groups}
        for _ in range((stop - start) * len(self._groups)):
            first, arrival = self._wait()
            group = by_row[first]
            self._store(group.t, group.columns, *group.acted, arrival)
            group.obs = arrival[0]
            group.t += 1
            if group.t < stop:
                self._advance(group)
        self._obs = joined(self._layout, [group.obs for group in self._groups])

    def _advance(self, group: _Group) -> None:
        group.acted = self._act(group.obs)
        self._send(group.acted[0], group.rows)

    # --- stages ------------------------------------------------------------------------------

    def _call_policy(self, obs: Tree) -> tuple[Tree, Mapping[str, Array]]:
        """An action for each env, and what else the policy puts out."""
        out = self.policy(obs)
        if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict):
            return out
        if isinstance(out, tuple):
            got = f"a tuple of {', '.join(type(part).__name__ for part in out)}"
            raise TargetError(f"policy: expected an action or (action, dict of extras), got {got}")
        return out, {}

    def _step_all(self, action: Tree) -> Arrival:
        """One step of all envs, and resets where nobody else does them."""
        obs, reward, terminated, truncated, infos = self.envs.step(action)
        if self._mode != AutoresetMode.DISABLED:
            return self._arrival(obs, reward, terminated, truncated, infos)
        over = terminated | truncated
        if not over.any():
            return obs, reward, terminated, truncated, {}, None
        rows = np.flatnonzero(over)
        arrived = tree_map(np.copy, obs) if not self._layout.has_objects else obs
        final = {int(b): one(self._layout, arrived, int(b)) for b in rows}
        obs = self.envs.reset(options={"reset_mask": over.copy()})[0]
        lost = infos.get("worker_restarted")
        return obs, reward, terminated, truncated, final, lost

    def _send_actions(self, action: Tree, rows: NDArray[np.int64]) -> None:
        assert isinstance(self.envs, VectorEnv)
        self.envs.send(action, rows)

    def _receive(self) -> tuple[int, Arrival]:
        """The next group's first row, and what its envs gave."""
        assert isinstance(self.envs, VectorEnv)
        obs, reward, terminated, truncated, infos = self.envs.recv()
        arrival = self._arrival(obs, reward, terminated, truncated, infos)
        return int(infos["env_id"][0]), arrival

    def _arrival(
        self, obs: Tree, reward: Array, terminated: Flags, truncated: Flags, infos: dict[str, Any]
    ) -> Arrival:
        if not infos:
            return obs, reward, terminated, truncated, {}, None
        final: dict[int, Any] = {}
        if self._mode == AutoresetMode.SAME_STEP and "final_obs" in infos:
            final = {int(b): infos["final_obs"][b] for b in np.flatnonzero(terminated | truncated)}
        return obs, reward, terminated, truncated, final, infos.get("worker_restarted")

    def _write(
        self,
        t: int,
        columns: slice,
        action: Tree,
        extras: Mapping[str, Array],
        arrival: Arrival,
    ) -> None:
        """Write one step into the fragment, or, at its beginning, where the envs stand."""
        fragment = self._fragment
        assert fragment is not None
        obs, reward, terminated, truncated, final, lost = arrival
        if t == _BEFORE:
            fragment.begin(obs, version=self.policy_version)
            fragment.env_ids[:] = self._env_ids
            return
        over = terminated | truncated
        some_over = bool(over.any())
        started = over
        if self._next_step:
            started = self._ended[columns]
            if self._some_ended:
                fragment.valid[t, columns] = ~started
        if lost is not None:
            fragment.valid[t, columns] &= ~lost
            started = started | lost
        fragment.versions[t] = self.policy_version
        fragment.write(
            t,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_obs=obs,
            extras=extras,
            columns=columns,
            started=started,
        )
        if self._next_step and (some_over or self._some_ended):
            self._ended[columns] = over
            self._some_ended = bool(self._ended.any())
        if some_over:
            first = columns.start or 0
            for b in np.flatnonzero(over).tolist():
                if b not in final and not fragment.spec.final_in_rows:
                    raise TargetError(
                        f"env {first + b}: its episode ended in step {t}: expected "
                        "infos['final_obs'] to say where, as envs do that are reset in the same "
                        f"step, got none; correct {type(self.envs).__name__}'s infos, or its "
                        "metadata['autoreset_mode']"
                    )
                gone = lost is not None and bool(lost[b])
                fragment.end(t, first + b, final.get(b), lost=gone)

    # --- beginnings ----------------------------------------------------------------------------

    def _first_step(self, allocate: Allocate | None) -> None:
        """The first step of all, which shows what there is to store."""
        begun_at = copied(self._layout, self._obs)  # an env that does not copy overwrites it
        action, extras = self._act(self._obs)
        arrival = self._step(action)
        self.spec = FragmentSpec(
            steps=self.fragment_steps,
            envs=self.envs.num_envs,
            obs=self._layout,
            action=self._action_layout,
            reward=layout_of(arrival[1]),
            extras=tuple((name, layout_of(values)) for name, values in extras.items()),
            final_in_rows=self._mode == AutoresetMode.NEXT_STEP,
            frame_stack=self._frame_stack,
            frame_skip=self._frame_skip,
        )
        self._return = np.zeros((self.envs.num_envs, *self.spec.reward.shape))
        self._fragment = self._allocated(self.spec, allocate)
        self._begin(begun_at)
        self._store(0, slice(None), action, extras, arrival)
        self._obs = arrival[0]

    def _begin(self, obs: Tree) -> None:
        # Through the stage too: an experiment that leaves storing out leaves the older fragment
        # whole. Before the first step: an env that does not copy overwrites what it handed out.
        none = np.zeros(0, np.bool_)
        self._store(_BEFORE, slice(None), None, {}, (obs, none, none, none, {}, None))

    def _allocated(self, spec: FragmentSpec, allocate: Allocate | None) -> Fragment:
        if allocate is not None:
            return allocate(spec)
        if self._own is None:
            self._own = Fragment.empty(spec)
        return self._own

    def _choose_buffering(self, wanted: bool | Literal["auto"]) -> None:
        problem = self._buffering_problem()
        if wanted is True and problem:
            raise SettingError(f"double_buffer=True: {problem}, or set it to False")
        if wanted is False:
            self.double_buffer, self.reason = False, "switched off by double_buffer=False"
        elif problem:
            self.double_buffer, self.reason = False, f"not possible: {problem}"
        else:
            assert isinstance(self.envs, VectorEnv)
            for split in range(self.envs.splits):
                rows = self.envs.split_rows(split)
                self._groups.append(_Group(rows, slice(int(rows[0]), int(rows[-1]) + 1)))
            if wanted == "auto":
                self._trial, self.reason = BufferingTrial(), "measuring both ways"
            else:
                self.double_buffer, self.reason = True, "switched on by double_buffer=True"

    def _buffering_problem(self) -> str:
        if not isinstance(self.envs, VectorEnv) or self.envs.splits < 2:
            return "expected a hotloop vector env in groups, got one without; make it with splits=2"
        if self._mode == AutoresetMode.DISABLED:
            return (
                "expected envs that reset themselves, got autoreset_mode='disabled'; make them "
                "with 'next_step' or 'same_step'"
            )
        return ""
