"""Collect whole episodes, without a preference for short ones.

In envs that run side by side the short episodes end first: the first n that end contain too many
of them, and where length goes with return, every mean is biased. Here the number of episodes that
each env contributes is fixed before any of them begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.data.fragment import Fragment
from hotloop.data.layout import Tree, tree_map
from hotloop.errors import expect_positive
from hotloop.rollout.env_metadata import AnyVectorEnv
from hotloop.rollout.steps import Policy, StepCollector

Array = NDArray[Any]


@dataclass(frozen=True)
class Episode:
    """One whole episode of L steps, of one env.

    obs: tree of (L + 1, ...), with the last observation. action: tree of (L, ...). reward:
    (L,) or (L, K). extras: by name, (L, ...). versions: (L,), of the policy that acted.
    """

    env_id: int
    obs: Tree
    action: Tree
    reward: Array
    extras: Mapping[str, Array]
    versions: NDArray[np.int64]
    terminated: bool
    truncated: bool

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def total(self) -> Any:
        """The undiscounted return, a number or (K,)."""
        return self.reward.sum(0)


@dataclass
class _Column:
    """The episodes of one env, and the pieces of the one under way."""

    quota: int  # episodes that it contributes
    pieces: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)


class EpisodeCollector:
    """Whole episodes of a policy; every call begins new ones in all envs.

    Settings as for `StepCollector`. chunk_steps: steps of all envs between two looks at which
    episodes have ended.
    """

    def __init__(
        self, envs: AnyVectorEnv, policy: Policy, *, seed: int | None = None, chunk_steps: int = 32
    ) -> None:
        self.collector = StepCollector(
            envs, policy, fragment_steps=chunk_steps, double_buffer=False, seed=seed
        )
        self._used = False

    @property
    def env_steps(self) -> int:
        """Env steps made so far, also those of episodes that were not returned."""
        return self.collector.counts.env_steps

    def collect(self, n: int) -> list[Episode]:
        """Collect `n` episodes, ordered by env and then by time.

        Every env contributes its first n // B episodes, the first n % B envs one more, however
        long they are. An episode lost with a worker is replaced by the env's next.
        Raises: SettingError for an `n` below 1; what the envs or the policy raise.
        """
        expect_positive("n", n)
        width = self.collector.envs.num_envs
        columns = [_Column(n // width + (b < n % width)) for b in range(width)]
        if self._used:
            self.collector.reset()
        self._used = True
        while any(len(column.episodes) < column.quota for column in columns):
            fragment = self.collector.collect()
            final_obs = fragment.final_obs
            for b, column in enumerate(columns):
                if len(column.episodes) < column.quota:
                    _gather(fragment, final_obs, b, column)
        return [episode for column in columns for episode in column.episodes]


def _gather(fragment: Fragment, final_obs: Tree, b: int, column: _Column) -> None:
    """Add the column of one env to its episodes."""
    start = 0
    ends = np.flatnonzero(fragment.final_b == b)
    for ending in ends[np.argsort(fragment.final_t[ends])].tolist():
        if len(column.episodes) == column.quota:
            return
        stop = int(fragment.final_t[ending]) + 1
        column.pieces.append(_piece(fragment, b, start, stop))
        start = stop
        if not fragment.endings["lost"][ending]:
            final = tree_map(lambda leaf, at=ending: leaf[at : at + 1].copy(), final_obs)
            column.episodes.append(_joined(fragment, b, stop - 1, column.pieces, final))
        column.pieces = []
    if start < fragment.spec.steps:
        column.pieces.append(_piece(fragment, b, start, fragment.spec.steps))


def _piece(fragment: Fragment, b: int, start: int, stop: int) -> dict[str, Any]:
    real = start + np.flatnonzero(fragment.valid[start:stop, b])  # a copy, as indices make one
    return {
        "obs": tree_map(lambda leaf: leaf[real, b], fragment.obs),
        "action": tree_map(lambda leaf: leaf[real, b], fragment.action),
        "reward": fragment.reward[real, b],
        "extras": {name: values[real, b] for name, values in fragment.extras.items()},
        "versions": fragment.versions[real],
    }


def _joined(
    fragment: Fragment, b: int, t: int, pieces: list[dict[str, Any]], final: Tree
) -> Episode:
    def join(name: str, *more: Tree) -> Any:
        parts = [piece[name] for piece in pieces] + list(more)
        return tree_map(lambda *leaves: np.concatenate(leaves), *parts)

    return Episode(
        env_id=int(fragment.env_ids[b]),
        obs=join("obs", final),
        action=join("action"),
        reward=join("reward"),
        extras=join("extras"),
        versions=join("versions"),
        terminated=bool(fragment.terminated[t, b]),
        truncated=bool(fragment.truncated[t, b]),
    )
