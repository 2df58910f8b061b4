"""The state of a simulation: tensors at paths such as "agents/people/wealth".

Every value that a substep writes has a home tensor, allocated once, and where substeps run a spare
one: results are copied into the one that is not the present value, and then replace it. So no value
is ever half written, and no step allocates state. Where a gradient is wanted the results themselves
become the state, and no tensor is written again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hotloop.errors import PathError, SubstepError, nearest
from hotloop.sim import draws
from hotloop.sim.network import AnyNetwork
from hotloop.sim.paths import Branch, names_below
from hotloop.sim.settings import Settings
from hotloop.sim.traffic import Traffic

SECTIONS = ("agents", "environment", "networks", "objects")
COUNTERS = ("current_step", "current_substep")


@dataclass
class Slot:
    """The tensors of one value: `now` is the home, the spare, or a result that has a graph.

    given: the value as it was set from outside, where it requires a gradient.
    """

    path: str
    home: Tensor
    initial: Tensor  # broadcasts to the home's shape
    is_written: bool
    is_series: bool
    now: Tensor = field(init=False)
    spare: Tensor | None = None
    given: Tensor | None = None

    def __post_init__(self) -> None:
        self.now = self.home


class State(Mapping[str, Any]):
    """All values of one runner: `state["agents"]["people"]["wealth"]`, or by one path.

    Shapes: a column of agents (N, ...), a value of the environment or of an object any, a series
    (T,); in an ensemble each with a leading R.
    """

    def __init__(
        self, settings: Settings, *, sizes: Mapping[str, int], num_steps: int, traffic: Traffic
    ) -> None:
        self.settings = settings
        self.sizes = dict(sizes)
        self.num_steps = num_steps
        self.traffic = traffic
        self.substep = ""  # name of the one that runs, or ran last
        self.slots: dict[str, Slot] = {}
        self.networks: dict[str, AnyNetwork] = {}
        count = settings.replicates
        seeds = settings.seed + torch.arange(count or 1)
        self.seeds = (seeds[0] if count is None else seeds).to(settings.device)
        self._step_home = torch.zeros((), dtype=torch.int64, device=settings.device)
        self.step_index = self._step_home  # the step's number, which a graph can count
        self.counts_on_device = False  # while a graph is captured
        self._step = 0
        # Wraps the draws of steps that are differentiated, see scores.py.
        self.watch: Callable[[Tensor], Tensor] | None = None

    @property
    def device(self) -> torch.device:
        """Where every tensor lives."""
        return self.settings.device

    @property
    def replicates(self) -> int | None:
        """R, or None in a single run."""
        return self.settings.replicates

    @property
    def step(self) -> int:
        """Steps done in this episode; within a step its number, from 0.

        Raises: SubstepError while a graph is captured, which would repeat this number.
        """
        if self.counts_on_device:
            raise SubstepError(
                f"substep {self.substep!r} reads state.step, which a captured graph would freeze; "
                "use the tensor state.step_index"
            )
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = value
        self._step_home.fill_(value)
        self.renew_step_index()

    def renew_step_index(self) -> None:
        """Give `step_index` a tensor of its own for a differentiable step, whose graph may keep it.

        All other steps, and captured graphs, count in one tensor.
        """
        self.step_index = self._step_home.clone() if torch.is_grad_enabled() else self._step_home

    def size(self, population: str) -> int:
        """Agents of a population (N).

        Raises: PathError.
        """
        if population not in self.sizes:
            raise PathError(f"no population {population!r}{nearest(population, self.sizes)}")
        return self.sizes[population]

    def uniform(self, stream: int, population: str) -> Tensor:
        """Draw from [0, 1) for every agent in this step, float64, (N,) or (R, N).

        stream: one number for each kind of decision, so that no two share a draw.
        """
        # On a card the number is there already: a copy from the host would synchronise.
        on_host = self.device.type == "cpu" and not self.counts_on_device
        step = self._step if on_host else self.step_index
        drawn = draws.uniform(self.seeds, step, stream, self.size(population))
        return drawn if self.watch is None else self.watch(drawn)

    # --- reading by path ----------------------------------------------------------------------

    def __getitem__(self, path: str) -> Any:
        """Return the tensor or network at a path, or a mapping of the values below it.

        Raises: PathError, with the nearest path.
        """
        slot = self.slots.get(path)
        if slot is not None:
            return slot.now
        section, _, name = path.partition("/")
        if section == "networks" and name in self.networks:
            return self.networks[name]
        if path in COUNTERS:
            return self._step if path == "current_step" else self.substep
        if path in SECTIONS or self.below(path):
            return Branch(self, path)
        raise PathError(f"the state has no {path!r}{nearest(path, self.paths())}")

    def __iter__(self) -> Iterator[str]:
        return iter((*SECTIONS, *COUNTERS))

    def __len__(self) -> int:
        return len(SECTIONS) + len(COUNTERS)

    def paths(self) -> list[str]:
        """List the path of every tensor and network."""
        return [*self.slots, *(f"networks/{name}" for name in self.networks)]

    def below(self, path: str) -> list[str]:
        """List the names right below a path."""
        return names_below(path, self.paths())

    # --- writing ------------------------------------------------------------------------------

    def add(
        self,
        path: str,
        initial: Tensor,
        own: tuple[int, ...],
        *,
        written: bool = True,
        series: bool = False,
    ) -> None:
        """Add a value of shape `own`, after R, which starts as `initial`.

        A value that no substep writes is kept once; replicates share it.
        """
        shape = own if self.replicates is None else (self.replicates, *own)
        if written:
            home = torch.empty(shape, dtype=initial.dtype, device=self.device)
            home.copy_(initial)
            self.traffic.allocated(home)
        else:
            home = initial.expand(shape)
        self.slots[path] = Slot(path, home, initial, written, series)

    def commit(self, results: Mapping[str, Tensor], *, keep_graph: bool) -> None:
        """Make checked results the state, all at once.

        keep_graph: use the tensors themselves, so that they can be differentiated; else copies.
        """
        ready = [(s := self.slots[p], self._next(s, v, keep_graph)) for p, v in results.items()]
        for slot, value in ready:
            slot.now, slot.given = value, None

    def settle(self) -> bool:
        """Copy every value to its home tensor, which programs and captured graphs read.

        Returns: whether a column or value was in another tensor, as after substeps; series do not
        count, as their entries are only added.
        """
        away = [slot for slot in self.slots.values() if slot.now is not slot.home]
        for slot in away:
            slot.home.copy_(slot.now.detach())
            slot.now = slot.home
        return any(not slot.is_series for slot in away)

    def assign(self, path: str, value: Tensor | float) -> None:
        """Set a value between two steps; `reset` restores the first one.

        A tensor that requires a gradient becomes the value itself.

        Raises: PathError; SubstepError for a column that no substep writes, which replicates and
        programs share.
        """
        slot = self.slots.get(path)
        if slot is None or slot.is_series:
            what = "is a series" if slot else f"does not exist{nearest(path, self.slots)}"
            raise PathError(f"{path!r} cannot be set: it {what}")
        if not slot.is_written:
            raise SubstepError(f"{path!r} cannot be set: no substep declares to write it")
        fitting = torch.as_tensor(value).to(slot.home.dtype).to(slot.home.device)
        slot.given = None
        if fitting.requires_grad:
            slot.now = slot.given = fitting.expand(slot.home.shape)
        elif any(other.now.requires_grad for other in self.slots.values()):
            # A graph may have read the present tensor: it is not changed.
            slot.now = fitting.expand(slot.home.shape).clone()
        else:
            self.settle()
            slot.home.copy_(fitting)

    @property
    def has_given(self) -> bool:
        """Whether a value was set that requires a gradient, or was made to require one."""
        return any(
            slot.given is not None or (slot.now.requires_grad and slot.now.is_leaf)
            for slot in self.slots.values()
        )

    def reset(self) -> None:
        """Restore every first value."""
        for slot in self.slots.values():
            slot.now, slot.given = slot.home, None
            if slot.is_written:
                slot.home.copy_(slot.initial)
        self.step, self.substep = 0, ""

    def restart(self, path: str, initial: Tensor) -> None:
        """Replace the first value by one of the same shape, and set the value to it."""
        slot = self.slots[path]
        slot.initial = initial
        if slot.is_written:
            slot.home.copy_(initial)
        else:
            slot.home = initial.expand(slot.home.shape)
        slot.now = slot.home

    def get_state(self) -> dict[str, Any]:
        """Copy all that steps change, and the seeds, for `set_state`."""
        return {
            "step": self._step,
            "substep": self.substep,
            "seeds": self.seeds.clone(),
            "initial": {path: slot.initial for path, slot in self.slots.items()},
            "values": {p: s.now.detach().clone() for p, s in self.slots.items() if s.is_written},
        }

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Restore, in place, what `get_state` returned."""
        self.seeds.copy_(saved["seeds"])
        for path, initial in saved["initial"].items():
            if self.slots[path].initial is not initial:
                self.restart(path, initial)
        for path, value in saved["values"].items():
            slot = self.slots[path]
            slot.home.copy_(value)
            slot.now, slot.given = slot.home, None
        self.step, self.substep = saved["step"], saved["substep"]

    def _next(self, slot: Slot, value: Tensor, keep_graph: bool) -> Tensor:
        if self.watch is not None:
            value = value.as_subclass(Tensor)
        if slot.is_series:
            place, value = self.step_index.view(1), value.to(slot.home.dtype).unsqueeze(-1)
            if keep_graph or slot.now.requires_grad:
                return self.traffic.allocated(slot.now.index_copy(-1, place, value))
            self.traffic.reuses += 1
            return slot.now.index_copy_(-1, place, value)
        if keep_graph:
            return self.traffic.allocated(value.to(slot.home.dtype))
        if slot.now is not slot.home:
            target = slot.home
        else:
            if slot.spare is None:
                slot.spare = self.traffic.allocated(torch.empty_like(slot.home))
            target = slot.spare
        self.traffic.reuses += 1
        return target.copy_(value)


class StateView(Mapping[str, Any]):
    """The part of a state that a substep declares to read; other reads are refused.

    Raises: SubstepError for a path that exists and was not declared, PathError for one that does
    not exist.
    """

    def __init__(self, state: State, reads: Iterable[str], reader: str) -> None:
        self._state, self._reader = state, reader
        wanted = tuple(reads)
        self._allowed = [
            p for p in state.paths() if p in wanted or p.startswith(tuple(f"{w}/" for w in wanted))
        ]
        self._known = frozenset(self._allowed)
        self._tensors = [path for path in self._allowed if path in state.slots]
        self.device, self.replicates = state.device, state.replicates
        self.settings, self.seeds = state.settings, state.seeds
        self.num_steps = state.num_steps

    @property
    def step(self) -> int:
        """The number of this step, from 0."""
        return self._state.step

    @property
    def step_index(self) -> Tensor:
        """The number of this step as a tensor, int64 ()."""
        return self._state.step_index

    def versions(self) -> dict[str, int]:
        """Return how often each readable tensor was written in place."""
        return {path: self._state.slots[path].now._version for path in self._tensors}

    def size(self, population: str) -> int:
        """Agents of a population (N)."""
        return self._state.size(population)

    def uniform(self, stream: int, population: str) -> Tensor:
        """Do as `State.uniform`."""
        return self._state.uniform(stream, population)

    def __getitem__(self, path: str) -> Any:
        """Return the tensor or network at a path, or a mapping of the values below it."""
        if path in self._known or path in COUNTERS:
            return self._state[path]
        if self.below(path):
            return Branch(self, path)
        self._state[path]  # raises PathError for a path that does not exist
        raise SubstepError(
            f"substep {self._reader!r} reads {path!r} without declaring it; "
            f"declared: {', '.join(self._allowed) or 'nothing'}. Add it to `reads`"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({path.partition("/")[0] for path in self._allowed}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def below(self, path: str) -> list[str]:
        """List the declared names right below a path."""
        return names_below(path, self._allowed)
