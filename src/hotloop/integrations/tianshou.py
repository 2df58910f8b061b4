"""Tianshou's vector envs, class for class, on the backends of hotloop.

    from hotloop.integrations.tianshou import SubprocVectorEnv  # instead of tianshou.env

Collectors, trainers and wrappers of Tianshou run on them unchanged. As there, envs are
reset by the caller, infos are an array of dicts, `wait_num` and `timeout` make a step asynchronous.
What differs: a process holds many envs, step data of fixed shape lies in shared memory, an error
of an env keeps its type, rewards are float64, and attributes are those of the
outermost wrapper that has them. An env whose episode is over has to be reset before it steps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.env import BaseVectorEnv

from hotloop.data.layout import Tree
from hotloop.envs.actions import Given
from hotloop.envs.backends import find_backend, settings_of
from hotloop.envs.make import make_vec
from hotloop.envs.serial.engine import SerialVectorEnv
from hotloop.envs.table import Rows
from hotloop.envs.vector import VectorEnv
from hotloop.errors import ShapeError, TargetError
from hotloop.integrations.loose_env import RESULT, InArray, LooseEnv, LooseResult
from hotloop.integrations.tianshou_actors import ActorCollector
from hotloop.integrations.tianshou_collector import FragmentCollector, FragmentCollectorFactory

__all__ = [
    "ActorCollector",
    "BackendVectorEnv",
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


class BackendVectorEnv(BaseVectorEnv):
    """Tianshou's contract over a backend of hotloop, see `tianshou.env.BaseVectorEnv`.

    backend: its name. casts: whether observations take the type of their space. settings: of the
    backend, such as `num_workers`; where some envs are waited for, it is one for each env.

    Raises: AssertionError for `wait_num` and `timeout`, as Tianshou; SettingError for a backend or
    a setting that does not exist; what making an env raises.
    """

    def __init__(  # not BaseVectorEnv's: it makes a worker for each env
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        backend: str,
        casts: bool = False,
        **settings: Any,
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
        self._early: list[Outcome] = []  # received before the caller asked
        self._engine = _make_engine(env_fns, backend, self.is_async, casts, settings)
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
                pass  # Tianshou does not check actions: the env refuses what does not fit
        return Given(action)

    def _step(self, ids: Rows) -> Step:
        """The results of a step of these envs, as columns; the common case costs no loop."""
        obs, reward, terminated, truncated, infos = self._recv(ids)
        layout = self._engine.layout
        if RESULT in infos or not layout.is_leaf or layout.has_objects:
            return _columns(self._outcomes(ids, obs, reward, terminated, truncated, infos))
        lost = infos.get("worker_restarted", np.zeros(len(ids), np.bool_)).tolist()
        own = [
            {"env_id": i} | ({"worker_restarted": True} if gone else {})
            for i, gone in zip(ids.tolist(), lost, strict=True)
        ]
        return obs, reward, terminated, truncated, _objects(own)

    def _recv(self, ids: Rows) -> tuple[Any, ...]:
        """Receive these envs; after an error none of them is under way."""
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
        results = infos.get(RESULT, [None] * len(ids))
        lost = infos.get("worker_restarted", [False] * len(ids))
        outcomes = []
        for k, i in enumerate(ids.tolist()):
            result: LooseResult = results[k] or LooseResult()
            info = dict(result.info)
            if with_ids:
                info["env_id"] = i
            if lost[k]:
                info["worker_restarted"] = True
            outcomes.append(
                (
                    layout.row(obs, k) if result.obs is InArray else result.obs,
                    reward[k] if result.reward is InArray else result.reward,
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


class DummyVectorEnv(BackendVectorEnv):
    """`tianshou.env.DummyVectorEnv`: envs of this process, one after the other."""

    def __init__(
        self, env_fns: EnvFns, wait_num: int | None = None, timeout: float | None = None
    ) -> None:
        super().__init__(env_fns, wait_num, timeout, backend="serial")

    @property
    def workers(self) -> list[Any]:  # type: ignore[override]
        """The objects that hold an env each, as their `env`."""
        return list(self._engine.envs) if isinstance(self._engine, SerialVectorEnv) else []


class SubprocVectorEnv(BackendVectorEnv):
    """`tianshou.env.SubprocVectorEnv`: envs of other processes.

    num_workers: processes; one for each env if some are waited for, else for each usable core.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        share_memory: bool = False,
        context: str | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        settings = {"context": context, "num_workers": num_workers}
        super().__init__(
            env_fns, wait_num, timeout, backend="process", casts=share_memory, **settings
        )


class ShmemVectorEnv(BackendVectorEnv):
    """`tianshou.env.ShmemVectorEnv`: the same, with observations in the type of their space."""

    def __init__(
        self,
        env_fns: EnvFns,
        wait_num: int | None = None,
        timeout: float | None = None,
        *,
        num_workers: int | None = None,
    ) -> None:
        super().__init__(
            env_fns, wait_num, timeout, backend="process", casts=True, num_workers=num_workers
        )


class RayVectorEnv(BackendVectorEnv):
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
        super().__init__(env_fns, wait_num, timeout, backend="ray", num_workers=num_workers)


class VenvFactory:
    """Goes where Tianshou's high-level API takes a `VectorEnvType`.

        EnvFactoryRegistered(task="CartPole-v1", venv_type=VenvFactory("process"))

    backend: "serial", "process" or "ray", or any other of hotloop's. settings: as of
    `BackendVectorEnv`.
    Raises: SettingError for an unknown backend.
    """

    def __init__(self, backend: str = "process", **settings: Any) -> None:
        find_backend(backend)
        self.backend = backend
        self._settings = settings

    def create_venv(self, factories: EnvFns) -> BackendVectorEnv:
        """A vector env of these envs."""
        return BackendVectorEnv(factories, backend=self.backend, **self._settings)


def _make_engine(
    env_fns: EnvFns, backend: str, waits_for_some: bool, casts: bool, settings: dict[str, Any]
) -> VectorEnv:
    """The vector env below: with arrays, or with objects where envs have different shapes."""
    known = settings_of([backend])
    settings = {name: value for name, value in settings.items() if value is not None}
    if waits_for_some and "num_workers" in known:
        settings.setdefault("num_workers", len(env_fns))
        # A batch is what is done first: then envs of a process are stepped one by one.
        settings.setdefault("batch_size", 1)
        if "num_cpus" in known:
            settings.setdefault("num_cpus", 0.0)  # a worker that waits needs no core of its own

    def make(opaque: bool) -> VectorEnv:
        fns = [partial(LooseEnv, fn, i, casts, opaque) for i, fn in enumerate(env_fns)]
        return make_vec(fns, backend=backend, autoreset_mode="disabled", **settings)

    try:
        return make(opaque=False)
    except TargetError:
        return make(opaque=True)


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
