"""Partial batches: whether send and recv keep every env's own episode."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.testing.conformance.reference import ReferenceEnv
from hotloop.testing.conformance.rows import ended_rows, rows, stacked
from hotloop.testing.conformance.subject import AnyVectorEnv, Broken, Check, Subject, Undecided
from hotloop.testing.conformance.trees import same, snapshot

VectorSubject = Subject[AnyVectorEnv]
# Steps of every env, on average.
STEPS_PER_ENV = 30


@runtime_checkable
class PartialBatches(Protocol):
    """A vector env that returns batches of the envs that are ready."""

    def async_reset(self) -> None:
        """Start a reset of every env."""

    def send(self, actions: Any, env_ids: Any = None) -> Any:
        """Start a step of `env_ids`."""

    def recv(self) -> tuple[Any, ...]:
        """The next envs that are ready."""


def _begin(subject: VectorSubject) -> Any:
    env: Any = _partial(subject.fresh())
    if _takes_a_seed(env):
        env.async_reset(seed=subject.settings.seed)
    else:
        env.async_reset()
    return env


def _partial(env: Any) -> PartialBatches:
    if not isinstance(env, PartialBatches):
        raise Undecided("no partial batches (async_reset, send and recv)")
    return env


def _takes_a_seed(env: PartialBatches) -> bool:
    # Some vendors seed when the env is made.
    return "seed" in inspect.signature(env.async_reset).parameters


def _ids(env: AnyVectorEnv, received: Sequence[Any], where: str) -> list[int]:
    if len(received) != 5:
        raise Broken(f"{where}: expected five values, got {len(received)}")
    infos, count = received[4], len(received[1])
    ids = infos.get("env_id")
    if not isinstance(ids, np.ndarray) or ids.dtype.kind not in "iu" or ids.shape != (count,):
        raise Broken(f"{where}: infos['env_id'] is {ids!r}, of {count} rows")
    listed: list[int] = ids.tolist()
    if len(set(listed)) != count or not 0 <= min(listed) <= max(listed) < env.num_envs:
        raise Broken(f"{where}: env ids {listed}: expected each once, of 0 to {env.num_envs - 1}")
    return listed


def _says_which_envs(subject: VectorSubject) -> None:
    env = _begin(subject)
    seen: set[int] = set()
    for number in range(1, env.num_envs + 1):
        where = f"recv {number} after async_reset"
        received = env.recv()
        ids = _ids(env, received, where)
        if seen & set(ids):
            raise Broken(f"{where}: envs {sorted(seen & set(ids))} came twice")
        if np.any(received[1]) or ended_rows(received).any():
            raise Broken(f"{where}: a reset came with a reward or a flag")
        seen |= set(ids)
        if len(seen) == env.num_envs:
            return
    raise Broken(f"after async_reset only envs {sorted(seen)} came")


def _refuses_busy_envs(subject: VectorSubject) -> None:
    env = _begin(subject)
    ids = _ids(env, env.recv(), "recv")
    actions = stacked(env.single_action_space, subject.actions(len(ids), env.single_action_space))
    env.send(actions, np.array(ids))
    try:
        env.send(actions, np.array(ids))
    except Exception:
        return
    raise Broken(f"a second send to envs {ids} before their recv was taken")


def _courses(subject: VectorSubject, backwards: bool) -> dict[int, list[Any]]:
    """The steps of each env, driven by its own list of actions."""
    env = _begin(subject)
    space = env.single_action_space
    actions = subject.actions(STEPS_PER_ENV * env.num_envs, space)
    courses: dict[int, list[Any]] = {i: [] for i in range(env.num_envs)}
    disabled = env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED
    for _ in range(STEPS_PER_ENV * env.num_envs):
        received = snapshot(env.recv())
        ids = _ids(env, received, "recv")
        obs = rows(env, received[0], len(ids))
        for row, i in enumerate(ids):
            courses[i].append((obs[row], *(part[row] for part in received[1:4])))
        # That mode has no resets: the course ends there.
        if max(map(len, courses.values())) >= STEPS_PER_ENV or (
            disabled and ended_rows(received).any()
        ):
            break
        order = ids[::-1] if backwards else ids
        chosen = [actions[i * STEPS_PER_ENV + len(courses[i]) - 1] for i in order]
        env.send(stacked(space, chosen), np.array(order))
    return courses


def _reference_steps(subject: VectorSubject, env_id: int, length: int) -> Iterator[Any]:
    env = subject.env
    reference = ReferenceEnv(subject.fresh_single(), env.metadata["autoreset_mode"])
    actions = subject.actions(STEPS_PER_ENV * env.num_envs, env.single_action_space)
    yield reference.reset(subject.settings.seed + env_id), 0.0, False, False
    for number in range(length - 1):
        yield reference.step(actions[env_id * STEPS_PER_ENV + number])[:4]


def _keeps_each_course(subject: VectorSubject) -> None:
    forwards, backwards = _courses(subject, False), _courses(subject, True)
    for i, course in forwards.items():
        for number, (one, other) in enumerate(zip(course, backwards[i], strict=False)):
            if not same(one, other):
                raise Broken(
                    f"env {i}, its step {number}: depends on the order of the rows sent, which "
                    "env_ids say; rows or actions went to other envs"
                )
        if subject.single is None or not _takes_a_seed(_partial(subject.env)):
            continue
        # A course may be empty: the envs of one fast worker can fill all batches.
        due_steps = _reference_steps(subject, i, len(course))
        for number, (got, due) in enumerate(zip(course, due_steps, strict=False)):
            expected = (due[0], np.asarray(due[1]).astype(got[1].dtype), *due[2:])
            if not same(got, expected):
                raise Broken(f"env {i}, its step {number}: differs from a plain env's")


PARTIAL: tuple[Check[AnyVectorEnv], ...] = (
    Check(
        "partial_env_id",
        "recv() names the envs of its rows in infos['env_id']; each once, resets with reward 0",
        "give an int array (rows,), in the order of the rows",
        _says_which_envs,
        needs=("runs",),
    ),
    Check(
        "partial_rows",
        "each env steps with the actions sent to it, whatever batches it comes in",
        "keep action, row and env id together; see env_ids of send",
        _keeps_each_course,
        needs=("partial_env_id", "determinism", "autoreset_mode"),
    ),
    Check(
        "partial_busy",
        "send() to an env that is still stepping raises",
        "refuse it before the action is written",
        _refuses_busy_envs,
        needs=("partial_env_id",),
    ),
)
