"""Multi-agent envs of PettingZoo's parallel kind as a vector env with one slot for each agent.

Agents come and go within an episode; a vector env's rows do not. So every possible agent has a
row for good, and `infos["agent_mask"]` says which of them act.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.data.layout import Layout, Tree
from hotloop.envs.actions import ActionCheck, action_splitter
from hotloop.envs.arguments import as_autoreset_mode, as_seeds, reset_rows
from hotloop.envs.infos import Pair, merge_infos
from hotloop.errors import SettingError, StateError, TargetError

Flags = NDArray[np.bool_]
Step = tuple[Tree, NDArray[np.float64], Flags, Flags, dict[str, Any]]


class ParallelEnv(Protocol):
    """The part of `pettingzoo.ParallelEnv` that is used."""

    agents: list[Any]
    possible_agents: list[Any]

    def observation_space(self, agent: Any) -> spaces.Space[Any]:
        """What an agent sees."""

    def action_space(self, agent: Any) -> spaces.Space[Any]:
        """What an agent does."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Mapping[Any, Any], Mapping[Any, dict[str, Any]]]:
        """Start an episode."""

    def step(self, actions: dict[Any, Any]) -> tuple[Mapping[Any, Any], ...]:
        """One step of all agents that act."""

    def render(self) -> Any:
        """A picture, if the env draws any."""

    def close(self) -> None:
        """Release the env's resources."""


class _Outcome(NamedTuple):
    """The results of a step or reset, one value a slot."""

    obs: list[Any]  # None for an agent that neither acts nor has just stopped
    reward: list[float]
    terminated: list[bool]
    truncated: list[bool]
    infos: list[list[dict[str, Any]]]


def parallel_vector_env(
    make_parallel_env: Callable[[], ParallelEnv] | Sequence[Callable[[], ParallelEnv]],
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
) -> "ParallelVectorEnv":
    """A vector env with a slot for every possible agent of one parallel env, or of several.

    See `ParallelVectorEnv`. Raises: TargetError for agents whose spaces differ; SettingError.
    """
    makers = [make_parallel_env] if callable(make_parallel_env) else list(make_parallel_env)
    return ParallelVectorEnv(makers, autoreset_mode)


class ParallelVectorEnv(VectorEnv[Tree, Tree, NDArray[Any]]):
    """Slots for the possible agents of parallel envs, in their order, env after env.

    `infos["agent_mask"]`, bool (num_envs,): the slots whose next action counts. An agent that
    stops has its flag in that step, once; afterwards its slot has observation 0, reward 0, no
    flags, and its action is ignored. A parallel env is reset when all its agents have stopped:
    with NEXT_STEP the step after shows their first observations, its actions ignored; with
    SAME_STEP the same step does. There, `final_obs` and `final_info` of every agent that stops are
    in the infos, and what is in `obs` comes after: zeros, or the next episode.
    `reset(seed=s)` seeds a parallel env with s plus the number of its first slot. Arrays returned
    are the caller's. Raises: TargetError for an env that breaks PettingZoo's contract.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], ParallelEnv]],
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.autoreset_mode = as_autoreset_mode(autoreset_mode)
        if self.autoreset_mode == AutoresetMode.DISABLED:
            raise SettingError(
                "parallel env: autoreset_mode: expected 'next_step' or 'same_step', got "
                "'disabled'; agents stop at different times, and only all together are reset"
            )
        if not makers:
            raise TargetError("parallel env: expected at least one, got none")
        self._members: list[_Member] = []
        try:
            for make in makers:
                first = self._members[-1].stop if self._members else 0
                self._members.append(_Member(make(), first, self.autoreset_mode))
            observation, action = _common_spaces(self._members)
        except Exception:
            for member in self._members:
                member.env.close()
            raise
        self.num_envs = self._members[-1].stop
        env = self._members[0].env
        self.metadata = {**getattr(env, "metadata", {}), "autoreset_mode": self.autoreset_mode}
        self.render_mode = getattr(env, "render_mode", None)
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)
        self._layout = Layout.of(observation)
        self._zero = self._layout.row(self._layout.empty(1), 0)
        self._check_actions = ActionCheck(action)
        self._split_actions = action_splitter(action)
        self._obs: list[Any] = [None] * self.num_envs

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Start an episode in all parallel envs, or in those of `options["reset_mask"]`.

        Raises: SettingError for a mask with some slots of a parallel env and not all of them.
        """
        seeds = as_seeds(seed, self.num_envs)
        rest = {key: value for key, value in (options or {}).items() if key != "reset_mask"}
        infos: list[Pair] = []
        for member in self._chosen(options):
            outcome = member.reset(seeds[member.first], rest if options is not None else None)
            self._obs[member.first : member.stop] = outcome.obs
            infos += member.pairs(outcome)
        return self._stacked(), self._masked(infos)

    def step(self, actions: Tree) -> Step:
        """One step of every parallel env.

        Raises: ShapeError for actions that do not fit; StateError before the first reset;
        TargetError; what an env raises.
        """
        slots = self._split_actions(self._check_actions(actions, self.num_envs))
        reward: list[float] = []
        terminated: list[bool] = []
        truncated: list[bool] = []
        infos: list[Pair] = []
        for member in self._members:
            outcome = member.step(slots[member.first : member.stop])
            self._obs[member.first : member.stop] = outcome.obs
            reward += outcome.reward
            terminated += outcome.terminated
            truncated += outcome.truncated
            infos += member.pairs(outcome)
        flags = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        return self._stacked(), np.array(reward, np.float64), *flags, self._masked(infos)

    def render(self) -> tuple[Any, ...]:
        """The picture of its parallel env for every slot."""
        frames = ((member.env.render(), len(member.agents)) for member in self._members)
        return tuple(frame for frame, agents in frames for _ in range(agents))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002  # Gymnasium's signature
        """Close the parallel envs."""
        for member in self._members:
            member.env.close()

    def _stacked(self) -> Tree:
        known = [self._zero if obs is None else obs for obs in self._obs]
        return self._layout.public(self._layout.stack(known))

    def _masked(self, pairs: list[Pair]) -> dict[str, Any]:
        infos = merge_infos(self.num_envs, pairs)
        masks = {
            "agent_mask": np.concatenate([member.acting for member in self._members]),
            "_agent_mask": np.ones(self.num_envs, np.bool_),
        }
        return masks | infos | masks  # first in order, and an env cannot replace it

    def _chosen(self, options: dict[str, Any] | None) -> list["_Member"]:
        rows = reset_rows(options, self.num_envs)
        if rows is None:
            return self._members
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        chosen = []
        for member in self._members:
            of_member = mask[member.first : member.stop]
            if of_member.any() and not of_member.all():
                raise SettingError(
                    f"parallel env: options['reset_mask']: slots {member.first} to "
                    f"{member.stop - 1} are one parallel env: expected all or none of them, got "
                    f"{of_member.tolist()}"
                )
            if of_member.all():
                chosen.append(member)
        return chosen


class _Member:
    """One parallel env in slots `first` to `stop - 1`, and which of its agents act."""

    def __init__(self, env: ParallelEnv, first: int, autoreset_mode: AutoresetMode) -> None:
        possible = getattr(env, "possible_agents", None)
        if not possible:
            raise TargetError(
                f"parallel env {type(env).__qualname__}: possible_agents: expected all agents that "
                f"it may ever have, got {possible!r}; a slot cannot be made for an unknown agent"
            )
        self.env = env
        self.agents = list(possible)
        self.first, self.stop = first, first + len(self.agents)
        self.same_step = autoreset_mode == AutoresetMode.SAME_STEP
        self.acting: Flags = np.zeros(len(self.agents), np.bool_)
        self._started = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> _Outcome:
        """Start an episode; the reward of all is 0."""
        with _noting(self):
            observations, infos = self.env.reset(seed=seed, options=options)
        self._take_over(stopped=())
        self._started = True
        if not self.acting.any():
            raise TargetError(f"{self}: expected agents after reset(), got none in env.agents")
        count = len(self.agents)
        obs = [
            self._of(observations, agent, "observation") if acts else None
            for agent, acts in zip(self.agents, self.acting, strict=True)
        ]
        own = [[infos[agent]] if infos.get(agent) else [] for agent in self.agents]
        return _Outcome(obs, [0.0] * count, [False] * count, [False] * count, own)

    def step(self, actions: Sequence[Any]) -> _Outcome:
        """One step of the agents that act, or a reset if it is time for one."""
        if not self._started:
            raise StateError(f"{self}: step before its first reset; call reset() once before")
        if not self.acting.any():
            return self.reset()
        acted = self.acting.tolist()
        with _noting(self):
            observations, rewards, ended, cut, infos = self.env.step(
                {
                    agent: action
                    for agent, action, acts in zip(self.agents, actions, acted, strict=True)
                    if acts
                }
            )
        outcome = _Outcome([], [], [], [], [])
        for agent, acts in zip(self.agents, acted, strict=True):
            appeared = not acts and agent in self.env.agents
            has_obs = acts or appeared
            outcome.obs.append(self._of(observations, agent, "observation") if has_obs else None)
            outcome.reward.append(float(self._of(rewards, agent, "reward")) if acts else 0.0)
            # An env may go on giving the flags of an agent that stopped before: only once here.
            outcome.terminated.append(acts and bool(self._of(ended, agent, "termination")))
            outcome.truncated.append(acts and bool(self._of(cut, agent, "truncation")))
            outcome.infos.append([infos[agent]] if has_obs and infos.get(agent) else [])
        over = [a or b for a, b in zip(outcome.terminated, outcome.truncated, strict=True)]
        self._take_over([agent for agent, ends in zip(self.agents, over, strict=True) if ends])
        for agent, acts, ends, still in zip(self.agents, acted, over, self.acting, strict=True):
            if acts and not ends and not still:
                raise TargetError(
                    f"{self}: agent {agent!r} left env.agents: expected its termination or "
                    "truncation to be True in that step, got neither"
                )
        return self._begin_anew(outcome, over) if self.same_step else outcome

    def pairs(self, outcome: _Outcome) -> list[Pair]:
        """The infos with the slots that they belong to."""
        return [(self.first + k, info) for k, own in enumerate(outcome.infos) for info in own]

    def _begin_anew(self, outcome: _Outcome, over: list[bool]) -> _Outcome:
        """Put last observations into the infos, and the next episode's first in their place."""
        for k, ends in enumerate(over):
            if ends:
                final_info = outcome.infos[k][0] if outcome.infos[k] else {}
                outcome.infos[k] = [{"final_obs": outcome.obs[k], "final_info": final_info}]
                outcome.obs[k] = None
        if self.acting.any():
            return outcome
        fresh = self.reset()
        infos = [last + first for last, first in zip(outcome.infos, fresh.infos, strict=True)]
        return outcome._replace(obs=fresh.obs, infos=infos)

    def _take_over(self, stopped: Sequence[Any]) -> None:
        """Read from the env which agents act next."""
        unknown = [agent for agent in self.env.agents if agent not in self.agents]
        if unknown:
            raise TargetError(
                f"{self}: env.agents: expected some of possible_agents, got also {unknown}"
            )
        self.acting = np.array(
            [agent in self.env.agents and agent not in stopped for agent in self.agents], np.bool_
        )

    def _of(self, values: Mapping[Any, Any], agent: Any, what: str) -> Any:
        if agent not in values:
            raise TargetError(
                f"{self}: agent {agent!r}: expected one {what} for each agent that acts, got "
                f"those of {list(values)}"
            )
        return values[agent]

    def __str__(self) -> str:
        return f"parallel env {type(self.env).__qualname__}, slots {self.first} to {self.stop - 1}"


@contextmanager
def _noting(member: _Member) -> Iterator[None]:
    """Add the slots of a parallel env to its errors."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in {member}")
        raise


def _common_spaces(members: list[_Member]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """The spaces that all agents share."""
    first = members[0].agents[0]
    env = members[0].env
    common = env.observation_space(first), env.action_space(first)
    for member in members:
        for agent in member.agents:
            its = member.env.observation_space(agent), member.env.action_space(agent)
            for what, expected, got in zip(("observation", "action"), common, its, strict=True):
                if got != expected:
                    raise TargetError(
                        f"{member}: agent {agent!r}: {what} space: expected that of {first!r}, "
                        f"{expected}, got {got}; slots are alike: pad the smaller space, or make "
                        "one vector env for each kind of agent"
                    )
    return common
