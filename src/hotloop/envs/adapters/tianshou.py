"""Tianshou's vector envs, class for class, on the engines here.

    from hotloop.envs.adapters.tianshou import SubprocVectorEnv  # instead of tianshou.env

Collectors, trainers and wrappers of Tianshou run on them unchanged. They keep its ways: envs are
reset by hand, infos are an array of dicts, `wait_num` and `timeout` make a step asynchronous.
What differs: a process holds many envs, step data of fixed shape lies in shared memory, an error
of an env comes home as it was raised, rewards are float64, and attributes are those of the
outermost wrapper that has them. An env whose episode is over has to be reset before it steps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tianshou.env import BaseVectorEnv

from hotloop.data.layout import Tree
from hotloop.envs.actions import Given
from hotloop.envs.adapters.carried import TOLD, CarriedEnv, Missing, Told
from hotloop.envs.adapters.tianshou_collector import FragmentCollector, FragmentCollectorFactory
from hotloop.envs.placement import whole_cores
from hotloop.envs.process import ProcessVectorEnv
from hotloop.envs.serial import SerialVectorEnv
from hotloop.envs.vector import Rows, VectorEnv
from hotloop.errors import SettingError, ShapeError, TargetError

__all__ = [
    "DummyVectorEnv",
    "FragmentCollector",
    "FragmentCollectorFactory",
    "RayVectorEnv",
    "ShmemVectorEnv",
    "SubprocVectorEnv",
    "VenvFactory",
]

Array = NDArray[Any]
EnvFns = Sequence[Callable[[], Any]]
EnvIds = int | list[int] | Array | None
Step = tuple[Array, Array, Array, Array, Array]
Outcome = tuple[Any, Any, bool, bool, dict[str, Any]]  # of one env
MakeEngine = Callable[[EnvFns, int], VectorEnv]


class _VectorEnv(BaseVectorEnv):
    """Tianshou's contract over an engine, see `tianshou.env.BaseVectorEnv`.

    make_engine: from functions that make envs, and the number of workers that suits the waiting: 1
    for each env where some are waited for, 0 for as many as there are cores. casts: whether
    observations take the type of their space.
    """

    def __init__(  # not BaseVectorEnv's: it makes a worker for each env
        self,
        env_fns: EnvFns,
        make_engine: MakeEngine,
        wait_num: int | None,
        timeout: float | None,
        casts: bool = False,
    ) -> None:
        self._env_fns = env_fns
        self.env_num = len(env_fns)
        self.wait_num = wait_num or self.env_num
        self.timeout = timeout
        if not 1 <= self.wait_num <= self.env_num:
            raise AssertionError(f"wait_num should be in [1, {self.env_num}], but got {wait_num}")
        if timeout is not None and not timeout > 0:
            raise AssertionError(f"timeout is {timeout}, it should be positive if provided!")
        self.is_async = self.wait_num != self.env_num or timeout is not None
        self.is_closed = True  # until there is something to close
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self._early: list[Outcome] = []  # received before anybody asked
        self._engine = _engine_of(env_fns, make_engine, self.env_num * self.is_async, casts)
        self.is_closed = False

    def reset(self, env_id: EnvIds = None, **kwargs: Any) -> tuple[Array, Array]:
        """Start an episode in some envs, with arguments for their own `reset`.

        Raises: AssertionError for an env that is stepping; what an env raises.
        """
        self._assert_is_not_closed()
        ids = self._rows(env_id)
        if self.is_async:
            self._assert_id(ids)
        mask = np.zeros(self.env_num, np.bool_)
        mask[ids] = True
        self._engine.async_reset(options={"reset_mask": mask, "kwargs": kwargs})
        outcomes = self._receive(ids, with_ids=False)
        return _stacked([obs for obs, *_ in outcomes]), _objects([info for *_, info in outcomes])

    def step(self, action: Any, id: EnvIds = None) -> Step:
        """Step some envs, one action each; an asynchronous step gives those that are done first.

        action: None asks an asynchronous vector env for steps begun before.
        Raises: ValueError without an action or anything begun; AssertionError for an env that is
        stepping; what an env raises.
        """
        self._assert_is_not_closed()
        ids = self._rows(id)
        if action is not None:
            if len(action) != len(ids):
                raise AssertionError(f"expected {len(ids)} actions, got {len(action)}")
            if self.is_async:
                self._assert_id(ids)
            self._engine.send(self._actions(action, len(ids)), ids)
        if not self.is_async:
            if action is None:
                raise ValueError("action must be not-None for non-async")
            return self._step(ids)
        if action is not None:
            self.waiting_id += ids.tolist()
            self.ready_id = [i for i in self.ready_id if i not in set(ids.tolist())]
        return _columns(self._first_done())

    def get_env_attr(self, key: str, id: EnvIds = None) -> list[Any]:
        """An attribute of some envs; None where an env does not have it."""
        values = self._ask("read", id, key)
        return [values[i] for i in self._rows(id)]

    def set_env_attr(self, key: str, value: Any, id: EnvIds = None) -> None:
        """Set an attribute of some envs, inside of all their wrappers."""
        self._ask("write", id, key, value, self._rows(id).tolist())

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """Seed every env and its action space, env i with `seed + i` of an int."""
        seeds: Sequence[Any] = [seed] * self.env_num if seed is None else []
        if isinstance(seed, int | np.integer):
            seeds = [int(seed) + i for i in range(self.env_num)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.env_num:
            raise ValueError(f"seed: expected {self.env_num} seeds, got {len(seeds)}")
        return [[seed] for seed in self._ask("seed_as", None, seeds)]

    def render(self, **kwargs: Any) -> list[Any]:
        """What every env renders.

        Raises: RuntimeError while some are stepping.
        """
        self._assert_is_not_closed()
        if self.is_async and self.waiting_id:
            raise RuntimeError(
                f"Environments {self.waiting_id} are still stepping, cannot render them now."
            )
        return list(self._ask("draw", None, **kwargs))

    def close(self) -> None:
        """Close every env. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._engine.close()

    # --- between the engine's rows and Tianshou's ----------------------------------------------

    def _rows(self, id: EnvIds) -> Rows:
        return np.asarray(self._wrap_id(id), np.int64)

    def _actions(self, action: Any, num: int) -> Tree:
        """The actions in arrays if they fit, else as they are."""
        check = self._engine.check_actions
        if check.layout.is_leaf and not check.layout.has_objects:
            try:
                return check(np.asarray(action), num)
            except (ShapeError, ValueError):
                pass  # Tianshou does not look at actions: what does not fit is for the env
        return Given(action)

    def _step(self, ids: Rows) -> Step:
        """What a step of these envs gave, as columns; envs that told nothing cost nothing."""
        obs, reward, terminated, truncated, infos = self._recv(ids)
        layout = self._engine.layout
        if TOLD in infos or not layout.is_leaf or layout.has_objects:
            return _columns(self._outcomes(ids, obs, reward, terminated, truncated, infos))
        lost = infos.get("worker_restarted", np.zeros(len(ids), np.bool_)).tolist()
        told = [
            {"env_id": i} | ({"worker_restarted": True} if gone else {})
            for i, gone in zip(ids.tolist(), lost, strict=True)
        ]
        return obs, reward, terminated, truncated, _objects(told)

    def _recv(self, ids: Rows) -> tuple[Any, ...]:
        """Receive these envs; after an error nothing is under way that was to be received."""
        try:
            return self._engine.recv(ids)
        except Exception:
            if not self.is_async:
                self._engine.drain()
            busy = self._engine.under_way.tolist()
            self.waiting_id = [i for i in self.waiting_id if i in busy]
            self.ready_id = [i for i in range(self.env_num) if i not in busy]
            raise

    def _receive(self, ids: Rows, with_ids: bool = True) -> list[Outcome]:
        obs, reward, terminated, truncated, infos = self._recv(ids)
        return self._outcomes(ids, obs, reward, terminated, truncated, infos, with_ids)

    def _outcomes(
        self,
        ids: Rows,
        obs: Tree,
        reward: Array,
        terminated: Array,
        truncated: Array,
        infos: dict[str, Any],
        with_ids: bool = True,
    ) -> list[Outcome]:
        """One env after the other."""
        layout = self._engine.layout
        told = infos.get(TOLD, [None] * len(ids))
        lost = infos.get("worker_restarted", [False] * len(ids))
        outcomes = []
        for k, i in enumerate(ids.tolist()):
            tell: Told = told[k] or Told()
            info = dict(tell.info)
            if with_ids:
                info["env_id"] = i
            if lost[k]:
                info["worker_restarted"] = True
            outcomes.append(
                (
                    layout.row(obs, k) if tell.obs is Missing else tell.obs,
                    reward[k] if tell.reward is Missing else tell.reward,
                    bool(terminated[k]),
                    bool(truncated[k]),
                    info,
                )
            )
        return outcomes

    def _first_done(self) -> list[Outcome]:
        """`wait_num` envs, or those that are done after `timeout`: at least one."""
        outcomes, self._early = self._early, []
        if not outcomes and not len(self._engine.under_way):
            raise ValueError("step: no env is stepping: expected actions, got None")
        while not outcomes:
            ready = self._engine.poll(self.wait_num, self.timeout)
            if len(ready):
                outcomes = self._receive(ready)
        for *_, info in outcomes:
            self.waiting_id.remove(info["env_id"])
            self.ready_id.append(info["env_id"])
        return outcomes

    def _ask(self, what: str, id: EnvIds, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every env; steps under way are awaited first, and handed out later."""
        self._assert_is_not_closed()
        if self.is_async and id is not None:
            self._assert_id(self._rows(id))
        if len(busy := self._engine.under_way):
            self._early += self._receive(busy)
        return self._engine.call(what, *args, **kwargs)


class DummyVectorEnv(_VectorEnv):
    """`tianshou.env.DummyVectorEnv`: envs of this process, one after the other."""

    def __init__(
        self, env_fns: EnvFns, wait_num: int | None = None, timeout: float | None = None
    ) -> None:
        super().__init__(env_fns, _serial, wait_num, timeout)

    @property
    def workers(self) -> list[Any]:  # type: ignore[override]
        """What holds each env, as its `env`."""
        return list(self._engine.envs) if isinstance(self._engine, SerialVectorEnv) else []


class SubprocVectorEnv(_VectorEnv):
    """`tianshou.env.SubprocVectorEnv`: envs of other processes.

    num_workers: processes; one for each env if some are waited for, else for each usable core.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        share_memory: bool = False,
        context: Literal["fork", "spawn"] | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        make_engine = partial(_processes, context=context, num_workers=num_workers)
        super().__init__(env_fns, make_engine, wait_num, timeout, casts=share_memory)


class ShmemVectorEnv(_VectorEnv):
    """`tianshou.env.ShmemVectorEnv`: the same, with observations in the type of their space."""

    def __init__(
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        make_engine = partial(_processes, context=None, num_workers=num_workers)
        super().__init__(env_fns, make_engine, wait_num, timeout, casts=True)


class RayVectorEnv(_VectorEnv):
    """`tianshou.env.RayVectorEnv`: envs of Ray actors, on any node of a cluster.

    num_workers: actors; one for each env if some are waited for, else for each free core.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        super().__init__(env_fns, partial(_actors, num_workers=num_workers), wait_num, timeout)


class VenvFactory:
    """Goes where Tianshou's high-level API takes a `VectorEnvType`.

        EnvFactoryRegistered(task="CartPole-v1", venv_type=VenvFactory("process"))

    backend: "serial", "process" or "ray". settings: of the vector env's class.
    """

    def __init__(self, backend: str = "process", **settings: Any) -> None:
        classes = {"serial": DummyVectorEnv, "process": SubprocVectorEnv, "ray": RayVectorEnv}
        if backend not in classes:
            raise SettingError(f"backend: expected one of {', '.join(classes)}, got {backend!r}")
        self.backend = backend
        self._make: Callable[..., BaseVectorEnv] = partial(classes[backend], **settings)

    def create_venv(self, factories: EnvFns) -> BaseVectorEnv:
        """A vector env of these envs."""
        return self._make(factories)


def _engine_of(env_fns: EnvFns, make_engine: MakeEngine, workers: int, casts: bool) -> VectorEnv:
    """An engine of carried envs: in arrays, or as objects where envs have different shapes."""
    try:
        return make_engine(_carried(env_fns, casts, loose=False), workers)
    except TargetError:
        return make_engine(_carried(env_fns, casts, loose=True), workers)


def _carried(env_fns: EnvFns, casts: bool, loose: bool) -> EnvFns:
    return [partial(CarriedEnv, fn, i, casts, loose) for i, fn in enumerate(env_fns)]


def _serial(env_fns: EnvFns, workers: int) -> VectorEnv:  # noqa: ARG001  # there are none
    return SerialVectorEnv(env_fns, autoreset_mode="disabled")


def _processes(
    env_fns: EnvFns, workers: int, context: str | None, num_workers: int | None
) -> VectorEnv:
    return ProcessVectorEnv(
        env_fns,
        num_workers=num_workers or workers or min(whole_cores(), len(env_fns)),
        autoreset_mode="disabled",
        # A batch is what is done first, not all: then envs of a process are stepped one by one.
        batch_size=1 if workers else None,
        context=context,
    )


def _actors(env_fns: EnvFns, workers: int, num_workers: int | None) -> VectorEnv:
    # Actors that wait for others' steps need no core of their own.
    from hotloop.envs.ray import RayVectorEnv as RayEngine

    return RayEngine(
        env_fns,
        num_workers=num_workers or workers or None,
        autoreset_mode="disabled",
        num_cpus=0.0 if workers else 1.0,
    )


def _columns(outcomes: Sequence[Outcome]) -> Step:
    obs, reward, terminated, truncated, infos = zip(*outcomes, strict=True)
    return (
        _stacked(obs),
        np.stack(reward),
        np.array(terminated),
        np.array(truncated),
        _objects(infos),
    )


def _stacked(observations: Sequence[Any]) -> Array:
    """One array; of objects where shapes differ."""
    try:
        return np.stack(observations)
    except ValueError:
        return _objects(observations)


def _objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), object)
    for k, value in enumerate(values):
        array[k] = value
    return array
