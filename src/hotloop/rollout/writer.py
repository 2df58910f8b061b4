"""Write the steps of a vector env into fragments.

Apart from the collector, which decides who steps when: here is what a step means to a fragment,
in every autoreset mode.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment, FragmentSpec
from hotloop.data.layout import Tree
from hotloop.errors import TargetError

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Allocate = Callable[[FragmentSpec], Fragment]


class Arrival(NamedTuple):
    """What one step of some envs gave.

    final_obs: by row of these envs, where their episodes ended. lost: rows whose env was lost with
    its worker; None for none.
    """

    obs: Tree
    reward: Array
    terminated: Flags
    truncated: Flags
    final_obs: Mapping[int, Any]
    lost: Flags | None


class FragmentWriter:
    """The fragment being filled, and the episodes that go on from one fragment to the next.

    env_ids: (B,), stored in every fragment. envs_name: of the vector env, for errors.
    """

    def __init__(self, mode: AutoresetMode, env_ids: NDArray[np.int64], envs_name: str) -> None:
        self.fragment: Fragment | None = None
        self._next_step = mode == AutoresetMode.NEXT_STEP
        self._env_ids = env_ids
        self._envs_name = envs_name
        self._own: Fragment | None = None  # filled again and again
        # In next-step mode: envs that their next step only resets.
        self._ended, self._some_ended = np.zeros(len(env_ids), np.bool_), False
        self._running_return = np.zeros(len(env_ids))
        self._running_length = np.zeros(len(env_ids), np.int64)
        self._just_reset = True

    def open(self, spec: FragmentSpec, allocate: Allocate | None) -> None:
        """Take the fragment to fill: a new one from `allocate`, or else the same every time."""
        if self.fragment is None:
            self._running_return = np.zeros((spec.envs, *spec.reward.shape))
        if allocate is not None:
            self.fragment = allocate(spec)
            return
        if self._own is None:
            self._own = Fragment.empty(spec)
        self.fragment = self._own

    def begin(self, obs: Tree, version: int) -> None:
        """Write the observations at which the fragment begins."""
        fragment = self.fragment
        assert fragment is not None
        fragment.begin(obs, version=version, follows_reset=self._just_reset)
        fragment.env_ids[:] = self._env_ids

    def write(
        self,
        t: int,
        columns: slice,
        action: Tree,
        extras: Mapping[str, Array],
        arrival: Arrival,
        version: int,
    ) -> None:
        """Write step `t` of the envs in `columns`, acted by policy `version`."""
        fragment = self.fragment
        assert fragment is not None
        obs, reward, terminated, truncated, _, lost = arrival
        over = terminated | truncated
        started = over  # whose `obs` begins an episode
        if self._next_step:
            started = self._ended[columns]
            if self._some_ended:
                fragment.valid[t, columns] = ~started
        if lost is not None:
            fragment.valid[t, columns] &= ~lost
            started = started | lost
        fragment.versions[t] = version
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
        ended = over.nonzero()[0]  # a fifth of what any() takes for a few envs
        if self._next_step and (len(ended) or self._some_ended):
            self._ended[columns] = over
            self._some_ended = bool(self._ended.any())
        if len(ended):
            self._end_episodes(t, columns.start or 0, ended.tolist(), arrival)

    def finish(self) -> Fragment:
        """Fill in returns and lengths of the ended episodes; the fragment is then complete."""
        fragment = self.fragment
        assert fragment is not None
        fragment.tally(self._running_return, self._running_length)
        self._just_reset = False
        return fragment

    def forget_episodes(self) -> None:
        """Drop the episodes under way: all envs were reset."""
        self._ended[:], self._running_return[:], self._running_length[:] = False, 0, 0
        self._some_ended, self._just_reset = False, True

    def _end_episodes(self, t: int, first: int, ended: list[int], arrival: Arrival) -> None:
        """Note the episodes that ended in step `t`, by row; `first` is the column of row 0."""
        fragment, final_obs, lost = self.fragment, arrival.final_obs, arrival.lost
        assert fragment is not None
        for b in ended:
            if b not in final_obs and not fragment.spec.final_in_rows:
                raise TargetError(
                    f"env {first + b}: its episode ended in step {t}: expected "
                    "infos['final_obs'] to hold its last observation, as envs do that are reset in "
                    f"the same step, got none; correct the infos of {self._envs_name}, or its "
                    "metadata['autoreset_mode']"
                )
            is_lost = lost is not None and bool(lost[b])
            fragment.end(t, first + b, final_obs.get(b), lost=is_lost)
