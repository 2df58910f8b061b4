"""Stable-Baselines3's vector envs, class for class, on the backends of hotloop.

    from hotloop.integrations.stable_baselines3 import SubprocVecEnv

    envs = make_vec_env("CartPole-v1", n_envs=64, vec_env_cls=SubprocVecEnv)

Algorithms and wrappers of Stable-Baselines3 run on them unchanged. As there, an env that
ends is reset at once, its last observation is `terminal_observation` in its info, infos are a list
of dicts. What differs: a process holds many envs, and step data lies in shared memory.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import check_for_nested_spaces
from stable_baselines3.common.vec_env import VecEnv

from hotloop.data.layout import Layout, Tree
from hotloop.envs.actions import Given
from hotloop.envs.process.engine import ProcessVectorEnv
from hotloop.envs.serial.engine import SerialVectorEnv
from hotloop.envs.vector import VectorEnv
from hotloop.errors import ShapeError
from hotloop.integrations.indexed_env import IndexedEnv
from hotloop.loop.host import whole_cores

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]
Indices = int | Iterable[int] | None
Infos = list[dict[str, Any]]
Step = tuple[Tree, NDArray[np.float32], NDArray[np.bool_], Infos]


class _VecEnv(VecEnv):
    """Stable-Baselines3's contract over a same-step vector env of indexed envs."""

    _shares_objects = False  # whether envs may go on with the objects of their infos

    def __init__(self, engine: VectorEnv) -> None:
        self._engine = engine
        self._everyone = np.arange(engine.num_envs)
        super().__init__(
            engine.num_envs, engine.single_observation_space, engine.single_action_space
        )
        own = engine.metadata
        self.metadata = {key: own[key] for key in own if key != "autoreset_mode"}

    def reset(self) -> Tree:
        """Start an episode in every env, with the seeds and options set before, once."""
        engine = self._engine
        engine.drain()  # a step that was not waited for
        self.reset_infos = [{} for _ in range(self.num_envs)]
        obs: Tree = None
        for options, mask in _alike(self._options):
            given: dict[str, Any] = {**options, "reset_mask": mask}
            obs, pairs = engine.reset_by_env(seed=self._seeds, options=given)
            for i, info in pairs:
                self.reset_infos[i] = info
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: Any) -> None:
        """Begin a step with `actions[i]` for env i; `step_wait` gives the results.

        Raises: ShapeError for fewer or more actions than envs.
        """
        self._engine.send(self._as_sent(actions), self._everyone)

    def step_wait(self) -> Step:
        """Observations (of new episodes where done), rewards (float32), dones and infos.

        Raises: what an env raised, with a note that says which.
        """
        obs, reward, terminated, truncated, pairs = self._engine.recv_by_env(self._everyone)
        over = terminated | truncated
        by_env: list[list[dict[str, Any]]] = [[] for _ in range(self.num_envs)]
        for i, info in pairs:
            by_env[i].append(info)
        infos: Infos = []
        for i, (own, ends) in enumerate(zip(by_env, over.tolist(), strict=True)):
            if ends:
                final, *begins = own
                self.reset_infos[i] = begins[-1] if begins else {}
                own = [final["final_info"]]
            info = dict(own[0]) if own else {}
            if ends:
                info["terminal_observation"] = final["final_obs"]
            infos.append(deepcopy(info) if info and self._shares_objects else info)
        for info, cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = cut
        return obs, reward.astype(np.float32), over, infos

    def _as_sent(self, actions: Any) -> Tree:
        """The actions in arrays where they fit, else as they are, one an env.

        Algorithms give floats for MultiBinary spaces; whole numbers lose nothing as integers. The
        env refuses what else does not fit, as with Stable-Baselines3's own.
        """
        layout = self._engine.check_actions.layout
        if layout.is_leaf and not layout.has_objects:
            array = _in_array(actions, layout, self.num_envs)
            if array is not None:
                return array
        elif isinstance(actions, dict):
            return actions  # one batch for each part, as the engines take them
        if not hasattr(actions, "__len__") or len(actions) != self.num_envs:
            got = len(actions) if hasattr(actions, "__len__") else type(actions).__name__
            raise ShapeError(f"actions: expected {self.num_envs}, one an env, got {got}")
        return Given(actions[i] for i in range(self.num_envs))

    def close(self) -> None:
        """Close every env. Idempotent."""
        self._engine.close()

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """A picture of every env; None without `render_mode="rgb_array"`."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is "
                "`rgb_array` to obtain images.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return list(self._engine.render())

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of some envs."""
        return self._ask("read", indices, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the outermost wrapper of some envs."""
        self._ask("write", indices, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What a method of some envs returns."""
        return self._ask("ask", indices, method_name, method_args, method_kwargs)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Whether some envs have a wrapper of a class."""
        return self._ask("is_wrapped", indices, wrapper_class)

    def _ask(self, what: str, indices: Indices, *args: Any) -> list[Any]:
        numbers = [range(self.num_envs)[i] for i in self._get_indices(indices)]
        answers = self._engine.call(what, numbers, *args)
        return [answers[i] for i in numbers]


class DummyVecEnv(_VecEnv):
    """`stable_baselines3.common.vec_env.DummyVecEnv`: envs of this process.

    Raises: ValueError if functions give the same env; NotImplementedError for spaces of
    observations within one another, as Stable-Baselines3.
    """

    _shares_objects = True

    def __init__(self, env_fns: EnvFns) -> None:
        engine = SerialVectorEnv(_indexed(env_fns), autoreset_mode="same_step")
        self.envs = [env.env for env in engine.envs if isinstance(env, IndexedEnv)]
        if len({id(env.unwrapped) for env in self.envs}) != len(self.envs):
            engine.close()
            raise ValueError(
                "You tried to create multiple environments, but the function to create them "
                "returned the same instance instead of creating different objects: expected a "
                "function that makes an env at every call, not `lambda: env`"
            )
        try:
            check_for_nested_spaces(engine.single_observation_space)
        except NotImplementedError:
            engine.close()
            raise
        super().__init__(engine)

    def step_async(self, actions: Any) -> None:
        """As `SubprocVecEnv`, but surplus actions are left out.

        Stable-Baselines3's own leaves them out too; here a warning says so.
        """
        if isinstance(actions, list | np.ndarray) and len(actions) > self.num_envs:
            shape = self.action_space.shape
            alone = self.num_envs == 1 and np.shape(actions) == shape  # of one env, not in a batch
            if not alone:
                warnings.warn(
                    f"actions: expected {self.num_envs}, one an env, got {len(actions)}; those "
                    "after the last env are left out",
                    stacklevel=2,
                )
                actions = actions[: self.num_envs]
        super().step_async(actions)


class SubprocVecEnv(_VecEnv):
    """`stable_baselines3.common.vec_env.SubprocVecEnv`: envs of other processes.

    num_workers: processes; one for each usable core if None.
    """

    def __init__(
        self, env_fns: EnvFns, start_method: str | None = None, *, num_workers: int | None = None
    ) -> None:
        super().__init__(
            ProcessVectorEnv(
                _indexed(env_fns),
                num_workers=num_workers or min(whole_cores(), len(env_fns)),
                autoreset_mode="same_step",
                context=start_method,
            )
        )


def _indexed(env_fns: EnvFns) -> EnvFns:
    return [partial(IndexedEnv, fn, i) for i, fn in enumerate(env_fns)]


def _in_array(actions: Any, layout: Layout, num_envs: int) -> NDArray[Any] | None:
    """One row an env in the kind of number that the space has; None where that changes a value."""
    try:
        array = np.asarray(actions)
    except ValueError:
        return None  # of several shapes
    if num_envs == 1 and array.shape == layout.shape:
        array = array[None]
    if array.shape != (num_envs, *layout.shape) or array.dtype.kind not in "fiub":
        return None
    if layout.dtype.kind == "f" or array.dtype == layout.dtype:
        return array
    with np.errstate(invalid="ignore"):
        whole = array.astype(layout.dtype)
    return whole if np.array_equal(whole, array) else None


def _alike(
    options: Sequence[dict[str, Any]],
) -> list[tuple[dict[str, Any], NDArray[np.bool_]]]:
    """Options with the mask of the envs that have the same."""
    groups: list[tuple[dict[str, Any], NDArray[np.bool_]]] = []
    for i, own in enumerate(options):
        for known, mask in groups:
            if known is own or _is_equal(known, own):
                mask[i] = True
                break
        else:
            groups.append((own, np.arange(len(options)) == i))
    return groups


def _is_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays among them
        return False
