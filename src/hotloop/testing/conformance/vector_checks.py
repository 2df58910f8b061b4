"""The contract of a gymnasium.vector.VectorEnv, one check per sentence of `CHECKS`."""

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from hotloop.testing.conformance.autoreset import AUTORESET
from hotloop.testing.conformance.lifecycle import LIFECYCLE, PICKLE, RENDER_MODES
from hotloop.testing.conformance.partial import PARTIAL
from hotloop.testing.conformance.rows import ended_rows, rows, step_on
from hotloop.testing.conformance.subject import AnyVectorEnv, Broken, Check, Subject, raised
from hotloop.testing.conformance.trees import mismatches, same, snapshot

VectorSubject = Subject[AnyVectorEnv]
# Returned values that are watched for later changes.
WATCHED = 4
PARTS = ("observations", "rewards", "terminated", "truncated")


def survey(subject: VectorSubject) -> None:
    """One rollout; notes the first problem of every check that has no test of its own."""
    env = subject.env
    watched: list[tuple[str, Any, Any]] = []
    try:
        returned: Any = env.reset(seed=subject.settings.seed)
        if not isinstance(returned, tuple) or len(returned) != 2:
            subject.note("reset_returns", f"reset: got {type(returned).__name__}")
            return
        _look_at_obs(subject, "reset", returned[0])
        _look_at_infos(subject, "reset", returned[1])
        watched.append(("reset", (returned[0],), snapshot((returned[0],))))
        for number, action in enumerate(subject.actions(subject.settings.steps), start=1):
            where = f"step {number}"
            moved: Any = env.step(action)
            if not isinstance(moved, tuple) or len(moved) != 5:
                subject.note("step_returns", f"{where}: got {type(moved).__name__}")
                return
            _look_at_step(subject, where, moved)
            for before, kept, copied in watched:
                for part, a, b in zip(PARTS, kept, copied, strict=False):
                    if not same(a, b):
                        subject.note("arrays_kept", f"the {part} of {before} changed by {where}")
            watched = [*watched[-WATCHED:], (where, moved[:4], snapshot(moved[:4]))]
            _reset_ended(env, moved)
    except Exception as error:
        subject.note("runs", raised(error))


def _reset_ended(env: AnyVectorEnv, moved: tuple[Any, ...]) -> None:
    ended = ended_rows(moved)
    if env.metadata.get("autoreset_mode") == AutoresetMode.DISABLED and ended.any():
        env.reset(options={"reset_mask": ended})


def _look_at_obs(subject: VectorSubject, where: str, obs: Any) -> None:
    for mismatch in mismatches(subject.env.observation_space, obs):
        subject.note(f"obs_{mismatch.aspect}", f"{where}: {mismatch.text}")


def _look_at_step(subject: VectorSubject, where: str, moved: tuple[Any, ...]) -> None:
    obs, reward, terminated, truncated, infos = moved
    env = subject.env
    _look_at_obs(subject, where, obs)
    _look_at_infos(subject, where, infos)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        got = _outline(flag)
        if got != f"an array ({env.num_envs},) of bool":
            subject.note("flags", f"{where}: {name}: got {got}")
    declared = getattr(env, "reward_space", None)
    shape = (env.num_envs, *_inner_shape(declared))
    if not isinstance(reward, np.ndarray) or reward.shape != shape or reward.dtype.kind != "f":
        subject.note("reward", f"{where}: got {_outline(reward)}")
    elif not np.isfinite(reward).all():
        subject.note("reward", f"{where}: got {reward}")


def _inner_shape(declared: Any) -> tuple[int, ...]:
    return (declared.shape or ()) if isinstance(declared, Space) else ()


def _look_at_infos(subject: VectorSubject, where: str, infos: Any) -> None:
    if not isinstance(infos, dict):
        subject.note("infos", f"{where}: got {type(infos).__name__}")
        return
    for problem in _info_problems(infos, subject.env.num_envs, "infos", top=True):
        subject.note("infos", f"{where}: {problem}")


def _info_problems(infos: dict[str, Any], num_envs: int, place: str, top: bool) -> list[str]:
    problems = []
    for key, value in infos.items():
        name = f"{place}[{key!r}]"
        if key.startswith("_") and key[1:] in infos:
            if _outline(value) != f"an array ({num_envs},) of bool":
                problems.append(
                    f"{name}: a mask of ({num_envs},) bools is due, got {_outline(value)}"
                )
            continue
        # Which env a row is of holds for all rows; a dict's own mask covers what is in it.
        if top and key != "env_id" and f"_{key}" not in infos:
            problems.append(f"{name} has no mask {place}['_{key}']")
        if isinstance(value, dict):
            problems += _info_problems(value, num_envs, name, top=False)
        elif not isinstance(value, np.ndarray) or value.shape[:1] != (num_envs,):
            problems.append(f"{name}: an array of {num_envs} rows is due, got {_outline(value)}")
    return problems


def _outline(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    return f"{type(value).__name__} {value!r}"[:60]


def _has_spaces(subject: VectorSubject) -> None:
    env = subject.env
    count = getattr(env, "num_envs", None)
    if not isinstance(count, int) or count < 1:
        raise Broken(f"num_envs is {count!r}")
    for name in ("observation_space", "action_space"):
        single, batched = getattr(env, f"single_{name}", None), getattr(env, name, None)
        for what, space in ((f"single_{name}", single), (name, batched)):
            if not isinstance(space, Space):
                raise Broken(f"{what} is {space!r}")
        assert single is not None
        assert batched is not None
        due = batch_space(single, count)
        # Its own sample has the structure; bounds may differ between the envs.
        for mismatch in mismatches(due, batched.sample()):
            if mismatch.aspect != "bounds":
                raise Broken(f"{name} against {count} times {single}: {mismatch.text}")


def _declares_its_mode(subject: VectorSubject) -> None:
    mode = subject.env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise Broken(f"metadata['autoreset_mode'] is {mode!r}")


def rollout(subject: VectorSubject, env: AnyVectorEnv, seed: Any, steps: int) -> list[Any]:
    """Observations, rewards and flags of a reset and `steps` steps."""
    seen = [snapshot(env.reset(seed=seed)[0])]
    for action in subject.actions(steps):
        seen.append(snapshot(step_on(env, action)[:4]))
    return seen


def _follows_from_the_seed(subject: VectorSubject) -> None:
    steps, seed = subject.settings.steps, subject.settings.seed
    first = rollout(subject, subject.env, seed, steps)
    for what, env in (("the same env", subject.env), ("another of the maker", subject.fresh())):
        compared = rollout(subject, env, seed, steps)
        for number, (one, other) in enumerate(zip(first, compared, strict=True)):
            if not same(one, other):
                raise Broken(f"{what}, reset with seed {seed} again: differs at step {number}")


def _seeds_each_env(subject: VectorSubject) -> None:
    env, seed = subject.env, subject.settings.seed
    first = rows(env, snapshot(env.reset(seed=seed)[0]))
    each: Any = [seed + i for i in range(env.num_envs)]
    listed = rows(env, snapshot(env.reset(seed=each)[0]))
    if not same(first, listed):
        raise Broken(f"seed={seed} is not seed=[{seed}, {seed + 1}, ...]")
    shifted = rows(env, snapshot(env.reset(seed=seed + 1)[0]))
    if not same(first[1:], shifted[:-1]):
        raise Broken(f"env 1 with seed={seed} begins otherwise than env 0 with seed={seed + 1}")


def _accepts_its_actions(subject: VectorSubject) -> None:
    env = subject.env
    for action in subject.actions(8):
        before = snapshot(action)
        env.reset(seed=subject.settings.seed)
        env.step(action)
        if not same(action, before):
            raise Broken(f"{before!r} was changed to {action!r}, in the caller's own array")


_SHAPE = "observations have the structure and shape of the batched observation_space"
_DTYPE = "observations have the dtype of observation_space"
_BOUNDS = "observations lie within observation_space"

CHECKS: tuple[Check[AnyVectorEnv], ...] = (
    PICKLE,
    Check(
        "spaces",
        "num_envs and the four spaces are declared, the batched ones num_envs times the single",
        "use gymnasium.vector.utils.batch_space",
        _has_spaces,
    ),
    Check(
        "autoreset_mode",
        "metadata['autoreset_mode'] is a gymnasium.vector.AutoresetMode",
        "declare the mode in metadata",
        _declares_its_mode,
    ),
    Check(
        "runs",
        "reset() and step() with actions of the action space raise nothing",
        "see the exception; step the env by hand with the same seed and actions",
        needs=("spaces",),
    ),
    Check("reset_returns", "reset() returns (obs, infos)", "return both", needs=("runs",)),
    Check(
        "step_returns",
        "step() returns (obs, rewards, terminated, truncated, infos)",
        "return five values",
        needs=("runs", "reset_returns"),
    ),
    Check("obs_shape", _SHAPE, "mend the observation or the space", needs=("reset_returns",)),
    Check("obs_dtype", _DTYPE, "allocate the batch with the space's dtype", needs=("runs",)),
    Check("obs_bounds", _BOUNDS, "clip, or widen the space", needs=("reset_returns",)),
    Check(
        "reward",
        "rewards are a finite float array (num_envs,), or of the reward_space batched",
        "make them a numpy array of float64 or float32",
        needs=("step_returns",),
    ),
    Check(
        "flags",
        "terminated and truncated are bool arrays (num_envs,)",
        "make them numpy arrays of bool",
        needs=("step_returns",),
    ),
    Check(
        "infos",
        "infos is a dict of arrays with num_envs rows, each key with a mask _key of bools",
        "build it with VectorEnv._add_info",
        needs=("reset_returns",),
    ),
    Check(
        "arrays_kept",
        "arrays once returned do not change",
        "return copies; views only where the caller asks for them",
        needs=("step_returns",),
    ),
    Check(
        "determinism",
        "the same seed and actions give the same steps, in this and in another vector env",
        "seed every env at reset(seed=...), and no generator elsewhere",
        _follows_from_the_seed,
        needs=("step_returns",),
    ),
    Check(
        "seed_per_env",
        "an int seed s seeds env i with s + i",
        "seed each env by its index, else results depend on how many there are; nothing to do if "
        "the envs differ by their index anyway",
        _seeds_each_env,
        needs=("determinism", "obs_shape"),
        only_warns=True,
    ),
    Check(
        "actions",
        "every action of the action space is accepted, and left as is",
        "take the actions by value",
        _accepts_its_actions,
        needs=("step_returns",),
    ),
    *AUTORESET,
    *PARTIAL,
    RENDER_MODES,
    *LIFECYCLE,
)
