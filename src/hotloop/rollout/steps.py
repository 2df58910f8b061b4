"""Collect fragments: a policy steps a vector env that lives beside it.

All envs may be stepped at once, or, where the vector env is split, one group while the policy
computes for another; the transitions are the same. What a step means to a fragment is in
`writer.py`.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import DTypeLike, NDArray

from hotloop.data.fragment import ALL_ENVS, Fragment, FragmentSpec
from hotloop.data.layout import Layout, Tree, tree_map
from hotloop.envs.vector import VectorEnv
from hotloop.errors import SettingError, TargetError, expect_positive, nearest
from hotloop.loop import stage
from hotloop.rollout.batches import concatenated, copy_of, layout_of, row_of, rows_of
from hotloop.rollout.buffering import WINDOW_STEPS, BufferingTrial
from hotloop.rollout.env_metadata import AnyVectorEnv, autoreset_mode, frame_skip_of, in_process
from hotloop.rollout.writer import Allocate, Arrival, Flags, FragmentWriter

Array = NDArray[Any]
Policy = Callable[[Tree], Any]
_BEGIN = -1  # in place of a step: the observations at which a fragment begins
_STORED = ("obs", "action", "reward")


@runtime_checkable
class StampsVersion(Protocol):
    """A policy that is updated elsewhere; `version` is that of its last call."""

    version: int


@dataclass
class Counts:
    """What a collector has done since it was made: sums over its fragments."""

    env_steps: int = 0
    transitions: int = 0
    episodes: int = 0
    frames: int = 0
    fragments: int = 0

    def add(self, fragment: Fragment) -> None:
        """Add a fragment to the sums."""
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
    vector env with splits; False steps all at once; "auto" measures both within the first
    fragments, and keeps the faster. `double_buffer` and `reason` say what was chosen. With a
    policy that draws from one generator the order of its draws depends on it.
    seed: env i is seeded with seed + i. first_env_id: number of the first env, in `env_ids`.
    dtypes: in which "obs", "action" and "reward" are stored, such as {"obs": np.float32}; those
    of the envs where not given.
    to_env: turns a stored action into the one that the envs receive, such as by clipping it.
    frame_stack: frames an observation stacks along its first axis, to store each once; 0: none.
    frame_skip: frames the simulator plays in a step; None takes what the spec of the envs says.
    policy_effect: what an experiment that replaces a call of the policy would leave undone, see
    `stage`; "stateful" holds where the loop declares `state`, and the state of the policy.

    Raises: SettingError for settings, and TargetError for envs, that do not fit.
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
        dtypes: Mapping[str, DTypeLike] | None = None,
        to_env: Callable[[Tree], Tree] | None = None,
        frame_stack: int = 0,
        frame_skip: int | None = None,
        policy_effect: Literal["pure", "stateful", "effectful"] = "stateful",
    ) -> None:
        expect_positive("fragment_steps", fragment_steps)
        expect_positive("frame_skip", frame_skip)
        self.envs, self.policy = envs, policy
        self._stamps = isinstance(policy, StampsVersion)
        self.fragment_steps = fragment_steps
        self.policy_version = policy_version
        self.counts = Counts()
        self.spec: FragmentSpec | None = None  # known after the first step
        self._mode = autoreset_mode(envs)
        self._dtypes = _checked_dtypes(dtypes or {}, frame_stack)
        self._to_env = to_env
        self._frame_stack = frame_stack
        self._frame_skip = frame_skip or frame_skip_of(envs)
        self._layout = Layout.of(envs.single_observation_space)
        self._action_layout = Layout.of(envs.single_action_space)
        self._groups: list[_Group] = []
        self._trial: BufferingTrial | None = None
        self.double_buffer: bool | None = None  # None while "auto" still measures
        self.reason = ""
        self._choose_buffering(double_buffer)
        env_ids = first_env_id + np.arange(envs.num_envs)
        self._writer = FragmentWriter(self._mode, env_ids, type(envs).__name__)
        self._obs: Tree = envs.reset(seed=seed)[0]
        # The state of envs in other processes cannot be put back: nothing that moves with them
        # may be replaced then, neither steps nor what is stored of them.
        effect: Literal["stateful", "effectful"] = "stateful" if in_process(envs) else "effectful"
        self._act = stage("act", self._call_policy, effect=policy_effect)
        self._step = stage("env step", self._step_all, effect=effect)
        # Sending and waiting cannot be replaced one without the other: the results of what was
        # sent arrive all the same.
        self._send = stage("env send", self._send_actions, effect="effectful")
        self._wait = stage("env wait", self._receive, effect="effectful")
        self._store = stage("store", self._write, effect=effect)

    # --- what a caller does ------------------------------------------------------------------

    @property
    def state(self) -> list[object]:
        """What a `Loop` declares of it as state: itself; nothing with envs in other processes."""
        return [self] if in_process(self.envs) else []

    def collect(self, allocate: Allocate | None = None) -> Fragment:
        """Collect the next fragment; episodes go on where the one before was cut.

        allocate: makes the fragment to fill. Without it there is one, overwritten by the next
        call: copy what you keep.
        Raises: what the envs or the policy raise; TargetError for frames that are no stack.
        """
        start = 0
        if self.spec is None:
            self._first_step(allocate)
            start = 1
        else:
            self._writer.open(self.spec, allocate)
            self._begin(self._obs)
        self._run(start)
        fragment = self._writer.finish()
        self.counts.add(fragment)
        return fragment

    def update(self, policy: Policy, version: int) -> None:
        """Act by another policy from the next step on; its steps are stamped with `version`."""
        self.policy, self.policy_version = policy, version
        self._stamps = isinstance(policy, StampsVersion)

    def reset(self, seed: int | None = None) -> None:
        """Start a new episode in every env; those under way are dropped and counted nowhere."""
        self._obs = self.envs.reset(seed=seed)[0]
        self._writer.forget_episodes()

    # --- all envs at once, or in groups --------------------------------------------------------

    def _run(self, start: int) -> None:
        """Fill the fragment from step `start` on."""
        while start < self.fragment_steps:
            if self._trial is None:
                run = self._run_in_groups if self.double_buffer else self._run_at_once
                run(start, self.fragment_steps)
                return
            stop = min(start + WINDOW_STEPS, self.fragment_steps)
            begin = time.perf_counter()
            (self._run_in_groups if self._trial.buffered else self._run_at_once)(start, stop)
            self._trial.note(time.perf_counter() - begin, stop - start)
            start = stop
            if self._trial.over:
                self.double_buffer, self.reason = self._trial.verdict()
                self._trial = None

    def _run_at_once(self, start: int, stop: int) -> None:
        """Step all envs at once."""
        for t in range(start, stop):
            action, extras = self._act(self._obs)
            arrival = self._step(action)
            self._store(t, ALL_ENVS, action, extras, arrival)
            self._obs = arrival.obs

    def _run_in_groups(self, start: int, stop: int) -> None:
        """Step one group while the policy computes for another; ends with none under way."""
        for group in self._groups:
            group.t, group.obs = start, rows_of(self._layout, self._obs, group.columns)
            self._advance(group)
        by_row = {int(group.rows[0]): group for group in self._groups}
        for _ in range((stop - start) * len(self._groups)):
            first, arrival = self._wait()
            group = by_row[first]
            self._store(group.t, group.columns, *group.acted, arrival)
            group.obs = arrival.obs
            group.t += 1
            if group.t < stop:
                self._advance(group)
        self._obs = concatenated(self._layout, [group.obs for group in self._groups])

    def _advance(self, group: _Group) -> None:
        group.acted = self._act(group.obs)
        self._send(group.acted[0], group.rows)

    # --- stages ------------------------------------------------------------------------------

    def _call_policy(self, obs: Tree) -> tuple[Tree, Mapping[str, Array]]:
        """Return an action for each env, and the extras of the policy."""
        out = self.policy(obs)
        if self._stamps:
            self.policy_version = self.policy.version  # type: ignore[attr-defined]
        if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict):
            return out
        if isinstance(out, tuple):
            got = f"a tuple of {', '.join(type(part).__name__ for part in out)}"
            raise TargetError(f"policy: expected an action or (action, dict of extras), got {got}")
        return out, {}

    def _step_all(self, action: Tree) -> Arrival:
        """Step all envs once, and reset those that have ended where the vector env does not."""
        if self._to_env is not None:
            action = self._to_env(action)
        obs, reward, terminated, truncated, infos = self.envs.step(action)
        if self._mode != AutoresetMode.DISABLED:
            return self._arrival(obs, reward, terminated, truncated, infos)
        over = terminated | truncated
        if not over.any():
            return Arrival(obs, reward, terminated, truncated, {}, None)
        last_obs = tree_map(np.copy, obs) if not self._layout.has_objects else obs
        final_obs = {b: row_of(self._layout, last_obs, b) for b in np.flatnonzero(over).tolist()}
        obs = self.envs.reset(options={"reset_mask": over.copy()})[0]
        lost = infos.get("worker_restarted")
        return Arrival(obs, reward, terminated, truncated, final_obs, lost)

    def _send_actions(self, action: Tree, rows: NDArray[np.int64]) -> None:
        assert isinstance(self.envs, VectorEnv)
        self.envs.send(action if self._to_env is None else self._to_env(action), rows)

    def _receive(self) -> tuple[int, Arrival]:
        """Return the first row of the next group, and what its envs gave."""
        assert isinstance(self.envs, VectorEnv)
        obs, reward, terminated, truncated, infos = self.envs.recv()
        arrival = self._arrival(obs, reward, terminated, truncated, infos)
        return int(infos["env_id"][0]), arrival

    def _arrival(
        self, obs: Tree, reward: Array, terminated: Flags, truncated: Flags, infos: dict[str, Any]
    ) -> Arrival:
        if not infos:
            return Arrival(obs, reward, terminated, truncated, {}, None)
        final_obs: dict[int, Any] = {}
        if self._mode == AutoresetMode.SAME_STEP and "final_obs" in infos:
            ended = (terminated | truncated).nonzero()[0].tolist()
            final_obs = {b: infos["final_obs"][b] for b in ended}
        lost = infos.get("worker_restarted")
        return Arrival(obs, reward, terminated, truncated, final_obs, lost)

    def _write(
        self,
        t: int,
        columns: slice,
        action: Tree,
        extras: Mapping[str, Array],
        arrival: Arrival,
    ) -> None:
        """Write one step into the fragment, or the observations at which it begins."""
        if t == _BEGIN:
            self._writer.begin(arrival.obs, self.policy_version)
        else:
            self._writer.write(t, columns, action, extras, arrival, self.policy_version)

    # --- beginnings ----------------------------------------------------------------------------

    def _first_step(self, allocate: Allocate | None) -> None:
        """Make the very first step, which shows what there is to store."""
        begun_at = copy_of(self._layout, self._obs)  # an env that does not copy overwrites it
        action, extras = self._act(self._obs)
        arrival = self._step(action)
        self.spec = FragmentSpec(
            steps=self.fragment_steps,
            envs=self.envs.num_envs,
            obs=self._stored("obs", self._layout),
            action=self._stored("action", self._action_layout),
            reward=self._stored("reward", layout_of(arrival.reward)),
            extras=tuple((name, layout_of(values)) for name, values in extras.items()),
            final_in_rows=self._mode == AutoresetMode.NEXT_STEP,
            frame_stack=self._frame_stack,
            frame_skip=self._frame_skip,
        )
        self._writer.open(self.spec, allocate)
        self._begin(begun_at)
        self._store(0, ALL_ENVS, action, extras, arrival)
        self._obs = arrival.obs

    def _stored(self, name: str, layout: Layout) -> Layout:
        """Return the layout in which a part is stored."""
        dtype = self._dtypes.get(name)
        return layout if dtype is None else _with_dtype(layout, dtype)

    def _begin(self, obs: Tree) -> None:
        # Through the stage too: an experiment that leaves storing out leaves the older fragment
        # whole. Before the first step: an env that does not copy overwrites what it handed out.
        none = np.zeros(0, np.bool_)
        self._store(_BEGIN, ALL_ENVS, None, {}, Arrival(obs, none, none, none, {}, None))

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


def _checked_dtypes(dtypes: Mapping[str, DTypeLike], frame_stack: int) -> dict[str, np.dtype[Any]]:
    for name in dtypes:
        if name not in _STORED:
            raise SettingError(
                f"dtypes: expected names of what is stored, got {name!r}{nearest(name, _STORED)}"
            )
    if frame_stack and "obs" in dtypes:
        raise SettingError(
            "dtypes: 'obs': expected none with frame_stack, whose frames are compared as they "
            "come; leave one of the two out"
        )
    return {name: np.dtype(dtype) for name, dtype in dtypes.items()}


def _with_dtype(layout: Layout, dtype: np.dtype[Any]) -> Layout:
    """Return the layout with all leaves of numbers in `dtype`."""
    if layout.children is not None:
        children = tuple(_with_dtype(child, dtype) for child in layout.children)
        return dataclasses.replace(layout, children=children)
    return layout if layout.dtype.hasobject else dataclasses.replace(layout, dtype=dtype)
