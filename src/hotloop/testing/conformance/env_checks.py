"""The contract of a gymnasium.Env, one check per sentence of `CHECKS`."""

import inspect
import math
import numbers
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from hotloop.envs.ids import AnyEnv
from hotloop.testing.conformance.lifecycle import LIFECYCLE, PICKLE, RENDER_MODES
from hotloop.testing.conformance.subject import Broken, Check, Subject, Undecided, raised
from hotloop.testing.conformance.trees import mismatches, same, snapshot

EnvSubject = Subject[AnyEnv]
# Observations that are watched for later changes.
WATCHED = 4
# Steps of each episode of the checks that compare episodes.
COMPARED = 50


def survey(subject: EnvSubject) -> None:
    """One rollout; notes the first problem of every check that has no test of its own."""
    env, settings = subject.env, subject.settings
    watched: list[tuple[str, Any, Any]] = []
    try:
        obs = _reset(subject, "reset", seed=settings.seed)
        for number, action in enumerate(subject.actions(settings.steps), start=1):
            watched = [*watched[-WATCHED:], (f"step {number - 1}", obs, snapshot(obs))]
            where = f"step {number}"
            moved: Any = env.step(action)
            if not isinstance(moved, tuple) or len(moved) != 5:
                subject.note("step_returns", f"{where}: got {_outline(moved)}")
                return
            obs = moved[0]
            _look_at_step(subject, where, moved)
            if _true(moved[2]) or _true(moved[3]):
                obs = _reset(subject, f"the reset after {where}")
            for before, kept, copied in watched:
                if not same(kept, copied):
                    subject.note("obs_kept", f"the observation of {before} was changed by {where}")
    except _Unusable:
        return
    except Exception as error:
        subject.note("runs", raised(error))


class _Unusable(Exception):
    """A return value that nothing more can be done with; its problem has been noted."""


def _reset(subject: EnvSubject, where: str, seed: int | None = None) -> Any:
    returned: Any = subject.env.reset(seed=seed)
    if not isinstance(returned, tuple) or len(returned) != 2:
        subject.note("reset_returns", f"{where}: got {_outline(returned)}")
        raise _Unusable
    obs, info = returned
    _look_at_info(subject, where, info)
    _look_at_obs(subject, where, subject.env.observation_space, obs)
    return obs


def _look_at_obs(subject: EnvSubject, where: str, space: Space[Any], obs: Any) -> None:
    for mismatch in mismatches(space, obs):
        subject.note(f"obs_{mismatch.aspect}", f"{where}: {mismatch.text}")


def _look_at_info(subject: EnvSubject, where: str, info: Any) -> None:
    if not isinstance(info, dict):
        subject.note("info", f"{where}: got {_outline(info)}")
    elif not all(isinstance(key, str) for key in info):
        subject.note("info", f"{where}: got the keys {list(info)}")


def _look_at_step(subject: EnvSubject, where: str, moved: tuple[Any, ...]) -> None:
    obs, reward, terminated, truncated, info = moved
    _look_at_obs(subject, where, subject.env.observation_space, obs)
    _look_at_info(subject, where, info)
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            subject.note("flags", f"{where}: {name}: got {_outline(flag)}")
    declared = getattr(subject.env.unwrapped, "reward_space", None)
    if isinstance(declared, Space):
        for mismatch in mismatches(declared, reward):
            subject.note("reward", f"{where}: against reward_space: {mismatch.text}")
    elif not isinstance(reward, numbers.Real | np.number):
        subject.note("reward", f"{where}: got {_outline(reward)}")
    elif not math.isfinite(float(reward)):
        subject.note("reward", f"{where}: got {reward}")


def _true(flag: Any) -> bool:
    return bool(np.any(flag))


def _outline(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    return f"{value!r} ({type(value).__name__})"


def _has_spaces(subject: EnvSubject) -> None:
    for name in ("observation_space", "action_space"):
        space = getattr(subject.env, name, None)
        if not isinstance(space, Space):
            raise Broken(f"{name} is {space!r}")


def _takes_seed_and_options(subject: EnvSubject) -> None:
    for env in (subject.env, subject.env.unwrapped):
        signature = inspect.signature(env.reset)
        try:
            signature.bind(seed=1, options={})
        except TypeError as error:
            raise Broken(f"{type(env).__name__}.reset{signature}: {error}") from error


def episode(subject: EnvSubject, env: AnyEnv, seed: int | None, steps: int) -> list[Any]:
    """Observations, rewards and flags from a reset to the episode's end, `steps` at most."""
    seen = [snapshot(env.reset(seed=seed)[0])]
    for action in subject.actions(steps):
        moved = snapshot(env.step(action)[:4])
        seen.append(moved)
        if _true(moved[2]) or _true(moved[3]):
            break
    return seen


def _follows_from_the_seed(subject: EnvSubject) -> None:
    steps, seed = subject.settings.steps, subject.settings.seed
    first = episode(subject, subject.env, seed, steps)
    again = episode(subject, subject.env, seed, steps)
    other = episode(subject, subject.fresh(), seed, steps)
    for what, compared in (("the same env", again), ("another env of the maker", other)):
        if not same(first, compared):
            raise Broken(
                f"{what}, reset with seed {seed} again: {first_difference(first, compared)}"
            )


def first_difference(one: list[Any], other: list[Any]) -> str:
    """Where two rollouts part."""
    for number, (a, b) in enumerate(zip(one, other, strict=False)):
        if not same(a, b):
            return f"differs from step {number} on" if number else "the first observation differs"
    return f"ends after {len(other) - 1} steps instead of {len(one) - 1}"


def _keeps_its_generator(subject: EnvSubject) -> None:
    seed = subject.settings.seed
    one, other = (
        [episode(subject, env, s, COMPARED) for s in (seed, None, None)]
        for env in (subject.env, subject.fresh())
    )
    if not same(one, other):
        raise Broken(
            "after the same seed, the episodes that follow reset() differ between two envs: "
            "reset() took a new seed from elsewhere"
        )
    if same(one[0], one[1]) and same(one[1], one[2]) and _seeds_differ(subject):
        raise Broken("every reset() without a seed repeats the episode that the seed began")


def _seeds_differ(subject: EnvSubject) -> bool:
    env, seed = subject.env, subject.settings.seed
    first, *others = (episode(subject, env, seed + i, COMPARED) for i in range(5))
    return not all(same(first, other) for other in others)


def _uses_the_seed(subject: EnvSubject) -> None:
    if not _seeds_differ(subject):
        raise Broken("five seeds gave the same episode: a deterministic env, or an unused seed")


def _accepts_its_actions(subject: EnvSubject) -> None:
    env, seed = subject.env, subject.settings.seed
    for action in _telling_actions(subject):
        before = snapshot(action)
        env.reset(seed=seed)
        try:
            env.step(action)
        except Exception as error:
            raise Broken(f"{action!r} ({type(action).__name__}): {raised(error)}") from error
        if not same(action, before):
            raise Broken(f"{before!r} was changed to {action!r}, in the caller's own array")


def _takes_ints_by_value(subject: EnvSubject) -> None:
    env = subject.env
    if not isinstance(env.action_space, spaces.Discrete):
        raise Undecided("the action space is not Discrete")
    number = int(env.action_space.start)
    moves = []
    for action in (number, np.int64(number)):
        env.reset(seed=subject.settings.seed)
        moves.append(snapshot(env.step(action)[:4]))
    if not same(*moves):
        raise Broken(f"{number} does something else as an int than as a numpy.int64")


def _telling_actions(subject: EnvSubject) -> list[Any]:
    space = subject.env.action_space
    actions: list[Any] = subject.actions(8)
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)
        actions += [first, last, np.int64(first), np.int64(last), np.int32(last)]
    elif isinstance(space, spaces.Box):
        sample = actions[0]
        for bound in (space.low, space.high):
            actions.append(np.where(np.isfinite(bound), bound, sample).astype(space.dtype))
    return actions


def _reaches_an_end(subject: EnvSubject) -> None:
    env = subject.env
    env.reset(seed=subject.settings.seed)
    for action in subject.actions(subject.settings.max_steps):
        moved = env.step(action)
        if _true(moved[2]) or _true(moved[3]):
            return
    raise Undecided(f"no episode ended within {subject.settings.max_steps} steps")


_SHAPE = "observations have the structure and shape of observation_space"
_DTYPE = "observations have the dtype of observation_space"
_BOUNDS = "observations lie within observation_space"

CHECKS: tuple[Check[AnyEnv], ...] = (
    PICKLE,
    Check(
        "spaces",
        "observation_space and action_space are Gymnasium spaces",
        "set both in __init__",
        _has_spaces,
    ),
    Check(
        "reset_signature",
        "reset takes the keywords seed and options",
        "write def reset(self, *, seed=None, options=None)",
        _takes_seed_and_options,
    ),
    Check(
        "runs",
        "reset() and step() with actions of the action space raise nothing",
        "see the exception; step the env by hand with the same seed and actions",
        needs=("spaces", "reset_signature"),
    ),
    Check(
        "reset_returns",
        "reset() returns (obs, info)",
        "return both, info as an empty dict if there is nothing to report",
        needs=("runs",),
    ),
    Check(
        "step_returns",
        "step() returns (obs, reward, terminated, truncated, info)",
        "return five values, the end by the task and the cut by a limit apart",
        needs=("runs", "reset_returns"),
    ),
    Check("obs_shape", _SHAPE, "mend the observation or the space", needs=("reset_returns",)),
    Check("obs_dtype", _DTYPE, "cast, for instance with np.asarray", needs=("reset_returns",)),
    Check("obs_bounds", _BOUNDS, "clip, or widen the space", needs=("reset_returns",)),
    Check(
        "reward",
        "the reward is a finite real number, or of the env's reward_space",
        "return float(reward); for several, declare reward_space, a Box",
        needs=("step_returns",),
    ),
    Check(
        "flags",
        "terminated and truncated are bools",
        "return bool(...)",
        needs=("step_returns",),
    ),
    Check(
        "info",
        "info is a dict with names as keys",
        "return a dict, empty if there is nothing to report",
        needs=("reset_returns",),
    ),
    Check(
        "obs_kept",
        "an observation once returned does not change",
        "return a copy of a buffer that is written again",
        needs=("step_returns",),
    ),
    Check(
        "determinism",
        "the same seed and actions give the same episode, in this and in another env",
        "draw from self.np_random only, after super().reset(seed=seed)",
        _follows_from_the_seed,
        needs=("step_returns",),
    ),
    Check(
        "generator_kept",
        "reset() without a seed goes on with the generator, it does not seed it",
        "seed only when seed is not None, as super().reset(seed=seed) does",
        _keeps_its_generator,
        needs=("determinism",),
    ),
    Check(
        "seed_used",
        "different seeds give different episodes",
        "nothing if the env is deterministic, else draw from self.np_random",
        _uses_the_seed,
        needs=("determinism",),
        only_warns=True,
    ),
    Check(
        "actions",
        "every action of the action space is accepted, bounds and plain ints too, and left as is",
        "take the action by value: int(action), or a copy",
        _accepts_its_actions,
        needs=("step_returns",),
    ),
    Check(
        "int_actions",
        "a discrete action does the same as an int and as a numpy integer",
        "compare actions with ==, not with is or by type",
        _takes_ints_by_value,
        needs=("determinism", "actions"),
    ),
    Check(
        "ends",
        "an episode ends",
        "wrap the env in gymnasium.wrappers.TimeLimit, or look longer with max_steps",
        _reaches_an_end,
        needs=("step_returns",),
    ),
    RENDER_MODES,
    *LIFECYCLE,
)
