"""Whether a vector env resets as it declares, and equals single envs stepped one by one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.testing.conformance.reference import ReferenceEnv
from hotloop.testing.conformance.rows import action_rows, ended_rows, rows, stacked
from hotloop.testing.conformance.subject import AnyVectorEnv, Broken, Check, Subject, Undecided
from hotloop.testing.conformance.trees import mismatches, same, snapshot

VectorSubject = Subject[AnyVectorEnv]
Rows = NDArray[np.bool_]
# Steps with ends that are looked at; one end may fall on a row that shows nothing.
ENDS = 3


def _resets_as_declared(subject: VectorSubject) -> None:
    mode = subject.env.metadata["autoreset_mode"]
    by_mode = {
        AutoresetMode.NEXT_STEP: _resets_on_the_next_step,
        AutoresetMode.SAME_STEP: _resets_in_the_same_step,
        AutoresetMode.DISABLED: _resets_by_mask,
    }
    by_mode[mode](subject)


def _resets_on_the_next_step(subject: VectorSubject) -> None:
    env, twin = subject.env, subject.fresh()
    env.reset(seed=subject.settings.seed)
    twin.reset(seed=subject.settings.seed)
    pending = np.zeros(env.num_envs, np.bool_)
    ends = 0
    for number, action in enumerate(subject.actions(subject.settings.max_steps), start=1):
        moved = snapshot(env.step(action))
        # The twin's envs that are being reset get another action, which must change nothing.
        other = snapshot(twin.step(_with_other_actions(subject, action, pending)))
        reward, infos = np.asarray(moved[1]), moved[4]
        if pending.any():
            which = f"step {number}, the reset step of envs {np.flatnonzero(pending).tolist()}"
            if reward[pending].any():
                raise Broken(f"{which}: rewards {reward[pending].tolist()} instead of 0")
            if ended_rows(moved)[pending].any():
                raise Broken(f"{which}: an end is flagged on a reset step")
            if not same(moved[:4], other[:4]):
                raise Broken(f"{which}: the result depends on the action, which is to be ignored")
        if "final_obs" in infos:
            raise Broken(f"step {number}: infos['final_obs'], which belongs to the same-step mode")
        ends += bool(pending.any())
        if ends == ENDS:
            return
        pending = ended_rows(moved)
    _expect_ends(subject, ends)


def _with_other_actions(subject: VectorSubject, action: Any, rows_to_change: Rows) -> Any:
    if not rows_to_change.any():
        return action
    single = subject.env.single_action_space
    mixed = action_rows(subject.env, action)
    for i in np.flatnonzero(rows_to_change):
        others = subject.actions(20, single)
        mixed[i] = next((other for other in others if not same(other, mixed[i])), mixed[i])
    return stacked(single, mixed)


def _steps(subject: VectorSubject) -> Iterator[tuple[str, tuple[Any, ...], Rows]]:
    for number, action in enumerate(subject.actions(subject.settings.max_steps), start=1):
        moved = snapshot(subject.env.step(action))
        yield f"step {number}", moved, ended_rows(moved)


def _resets_in_the_same_step(subject: VectorSubject) -> None:
    env = subject.env
    env.reset(seed=subject.settings.seed)
    ends, shown_as_final = 0, 0
    for where, moved, ended in _steps(subject):
        infos = moved[4]
        for key in ("final_obs", "final_info"):
            mask = infos.get(f"_{key}", ended if key in infos else np.zeros_like(ended))
            if not np.array_equal(mask, ended):
                wanted, got = np.flatnonzero(ended).tolist(), np.flatnonzero(mask).tolist()
                raise Broken(f"{where}: infos[{key!r}] is due for envs {wanted}, given for {got}")
        if not ended.any():
            continue
        obs = rows(env, moved[0])
        for i in np.flatnonzero(ended):
            final = infos["final_obs"][i]
            for mismatch in mismatches(env.single_observation_space, final):
                raise Broken(f"{where}: infos['final_obs'][{i}]: {mismatch.text}")
            ends += 1
            shown_as_final += same(final, obs[i])
        if ends >= ENDS:
            break
    _expect_ends(subject, ends)
    if shown_as_final == ends and not _never_changes(subject):
        raise Broken(
            "at every end the observation is the old episode's last, not the new one's first"
        )


def _never_changes(subject: VectorSubject) -> bool:
    first = snapshot(subject.env.reset(seed=subject.settings.seed)[0])
    return all(same(subject.env.step(action)[0], first) for action in subject.actions(5))


def _resets_by_mask(subject: VectorSubject) -> None:
    env, twin, seed = subject.env, subject.fresh(), subject.settings.seed
    start = rows(env, snapshot(env.reset(seed=seed)[0]))
    twin.reset(seed=seed)
    before, again, after = subject.actions(3)
    moved = snapshot(env.step(before))
    twin.step(before)
    running = ~ended_rows(moved)
    mask = np.zeros(env.num_envs, np.bool_)
    mask[0] = True
    obs = rows(env, snapshot(env.reset(seed=seed, options={"reset_mask": mask})[0]))
    where = "reset(seed, options={'reset_mask': env 0 only})"
    if not same(obs[0], start[0]):
        raise Broken(f"{where}: env 0 was not begun anew with its seed")
    others = np.flatnonzero(running & ~mask)
    if any(not same(obs[i], row) for i, row in enumerate(rows(env, moved[0])) if i in others):
        raise Broken(f"{where}: the observation of another env changed")
    for action in (again, after):
        if not running[1:].all():
            break
        one, other = snapshot(env.step(action)), snapshot(twin.step(action))
        for i in others:
            if not same(rows(env, one[0])[i], rows(env, other[0])[i]):
                raise Broken(f"{where}: the episode of env {i} was disturbed")
        running &= ~ended_rows(one) & ~ended_rows(other)
    _ends_without_a_reset(subject)


def _ends_without_a_reset(subject: VectorSubject) -> None:
    env = subject.env
    env.reset(seed=subject.settings.seed)
    ends = 0
    for where, moved, ended in _steps(subject):
        if "final_obs" in moved[4]:
            raise Broken(f"{where}: infos['final_obs'], which belongs to the same-step mode")
        if ended.any():
            ends += 1
            env.reset(options={"reset_mask": ended})
        if ends == ENDS:
            return
    _expect_ends(subject, ends)


def _expect_ends(subject: VectorSubject, ends: int) -> None:
    if not ends:
        raise Undecided(
            f"no episode ended within {subject.settings.max_steps} steps; set a larger max_steps"
        )


def _equals_plain_envs(subject: VectorSubject) -> None:
    if subject.single is None:
        raise Undecided("no plain env to compare with was given (single=)")
    env = subject.env
    mode = env.metadata["autoreset_mode"]
    references = [ReferenceEnv(subject.fresh_single(), mode) for _ in range(env.num_envs)]
    seed = subject.settings.seed
    obs = snapshot(env.reset(seed=seed)[0])
    starts = [reference.reset(seed + i) for i, reference in enumerate(references)]
    if not same(rows(env, obs), starts):
        raise Broken(f"reset(seed={seed}): the observations differ from those of plain envs")
    for number, action in enumerate(subject.actions(subject.settings.steps), start=1):
        moved = snapshot(env.step(action))
        if mode == AutoresetMode.DISABLED and ended_rows(moved).any():
            env.reset(options={"reset_mask": ended_rows(moved)})
        obs_rows = rows(env, moved[0])
        for i, single_action in enumerate(action_rows(env, action)):
            due = references[i].step(single_action)
            reward = np.asarray(due.reward).astype(np.asarray(moved[1]).dtype)
            compared = (
                ("observation", obs_rows[i], due.obs),
                ("reward", moved[1][i], reward),
                ("terminated", moved[2][i], due.terminated),
                ("truncated", moved[3][i], due.truncated),
            )
            for what, got, expected in compared:
                if not same(got, expected):
                    raise Broken(
                        f"step {number}, env {i}: {what}: a plain env gives {expected}, got {got}"
                    )
            if due.final_obs is not None and not same(moved[4]["final_obs"][i], due.final_obs):
                raise Broken(f"step {number}, env {i}: final_obs differs from a plain env's")


AUTORESET: tuple[Check[AnyVectorEnv], ...] = (
    Check(
        "autoreset",
        "ended envs are reset in the declared mode, and as Gymnasium defines it",
        "declare the mode that the env has, or follow gymnasium.vector.SyncVectorEnv",
        _resets_as_declared,
        needs=("autoreset_mode", "step_returns", "obs_shape", "determinism"),
    ),
    Check(
        "single_equal",
        "every env gives the same steps as a plain env",
        "compare with gymnasium.vector.SyncVectorEnv at that step",
        _equals_plain_envs,
        needs=("autoreset",),
    ),
)
