"""What a trajectory keeps of a run.

A series of the environment holds the entry of every step already: a snapshot of it is computed
when it is read. Other values are copied when a substep has written them, and only those asked for.
Moments are counted in substeps: 0 is the start, then one for each substep of each step.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hotloop.errors import PathError, RecordError, SettingError, nearest
from hotloop.sim.copier import Copier, copier_for
from hotloop.sim.state import SECTIONS, State


@dataclass(frozen=True)
class Record:
    """What a trajectory keeps.

    Raises: SettingError for settings out of range.
    """

    keep: Sequence[str] = ("environment",)
    """Paths, or the beginnings of paths: "environment", "agents/people/wealth"."""
    every: int = 1
    """Copies are kept of every so many steps, from step 0 on; series are kept whole."""
    dtype: Mapping[str, torch.dtype] = field(default_factory=dict)
    """Narrower dtypes for copies, by path."""
    agents: bool = False
    """Whether all columns of agents are kept too."""
    gradient: bool = True
    """Whether what is kept of a differentiable run can be differentiated."""

    def __post_init__(self) -> None:
        if isinstance(self.keep, str):
            raise SettingError(f"record: keep: expected a tuple of paths, got {self.keep!r} alone")
        if self.every < 1:
            raise SettingError(f"record: every: expected at least 1 step, got {self.every}")
        if any(path.partition("/")[0] == "networks" for path in self.keep):
            raise SettingError("record: keep: networks do not change; find them in runner.state")

    def keeps(self, path: str) -> bool:
        """Whether a path is kept."""
        wanted = (*self.keep, "agents") if self.agents else tuple(self.keep)
        return any(path == w or path.startswith(f"{w}/") for w in wanted)

    def check_paths(self, state: State) -> None:
        """Refuse paths that the state does not have.

        Raises: PathError.
        """
        paths = state.paths()
        for wanted in (*self.keep, *self.dtype):
            known = wanted in SECTIONS or any(
                p == wanted or p.startswith(f"{wanted}/") for p in paths
            )
            if not known:
                raise PathError(f"record: the state has no {wanted!r}{nearest(wanted, paths)}")


@dataclass
class Kept:
    """A copy of one value, complete once its mark has passed."""

    moment: int
    address: int  # of what was copied
    value: Tensor
    mark: Any = None


class Recorder:
    """Fills the record of one episode.

    substeps: name and written paths of each, in their order.
    """

    def __init__(
        self,
        record: Record,
        state: State,
        substeps: Sequence[tuple[str, Sequence[str]]],
        copier: Copier | None = None,
    ) -> None:
        record.check_paths(state)
        self.record, self.state = record, state
        self.names = [name for name, _ in substeps]
        self._writes = [tuple(writes) for _, writes in substeps]
        self._copier = copier or copier_for(state.device)
        self.snapshots = 0
        self.snapshot_bytes = 0
        self.paths = [path for path in state.slots if record.keeps(path)]
        self._copied = [
            p for p in self.paths if state.slots[p].is_written and not state.slots[p].is_series
        ]
        by_substeps = {path for writes in self._writes for path in writes}
        self._changing = [path for path in self._copied if path in by_substeps]
        self._kept: dict[str, list[Kept]] = {path: [] for path in self._copied}
        self._at_step_end: set[int] = set()  # steps that a program did as a whole
        self._frozen: dict[str, Tensor] | None = None
        self._last_step = 0
        self._keep(self._copied, 0)

    @property
    def steps(self) -> int:
        """Steps done when the episode was left, or until now."""
        return self._last_step if self._frozen is not None else int(self.state["current_step"])

    def steps_until_copy(self, step: int, most: int) -> int:
        """After how many steps, from step number `step` on, a program has to stop for a copy.

        most: the steps that are left to do; the answer where nothing is to be copied before.
        """
        if not self._changing:
            return most
        return min(most, -step % self.record.every + 1)

    # --- while it runs -------------------------------------------------------------------------

    def before_writing(self, paths: Sequence[str], *, in_place: bool) -> None:
        """Let writers wait for the copies of what they will overwrite.

        Copies end in their order, so that the newest of that memory is enough. Unless values are
        changed in place, another memory than that of the present value is written.
        """
        for path in paths:
            for copy in reversed(self._kept.get(path, ())):
                if in_place or copy.address != self.state.slots[path].now.data_ptr():
                    if copy.mark is not None:
                        self._copier.computing_waits_for(copy.mark)
                    break

    def after_substep(self, step: int, index: int) -> None:
        """Keep what substep `index` of a step has written."""
        if self._changing and step % self.record.every == 0:
            # The first moment of a step without kept steps before it holds everything.
            whole = index == 0 and self.record.every > 1
            paths = [p for p in self._changing if whole or p in self._writes[index]]
            self._keep(paths, 1 + step * len(self.names) + index)

    def after_step(self, step: int) -> None:
        """Keep the state after a step of a program."""
        if self._changing and step % self.record.every == 0:
            self._at_step_end.add(step)
            self._keep(self._changing, (step + 1) * len(self.names))

    def after_change(self, path: str) -> None:
        """Keep a value that was set between two steps."""
        if path in self._kept:
            self._keep([path], 1 + self.steps * len(self.names))

    def freeze(self) -> None:
        """Keep the series before the state is reset."""
        self._last_step = self.steps
        self._frozen = {
            path: slot.now if slot.now.grad_fn is not None else slot.now.clone()
            for path, slot in self.state.slots.items()
            if path in self.paths and slot.is_series
        }

    def get_state(self) -> dict[str, Any]:
        """Copy the record for `set_state`."""
        kept = {path: list(entries) for path, entries in self._kept.items()}
        return {"kept": kept, "whole": set(self._at_step_end)}

    def set_state(self, saved: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned; the state is restored separately."""
        self._kept = {path: list(entries) for path, entries in saved["kept"].items()}
        self._at_step_end = set(saved["whole"])
        self._frozen = None

    def _keep(self, paths: Sequence[str], moment: int) -> None:
        for path in paths:
            value = self.state.slots[path].now
            if value.grad_fn is not None and self.record.gradient:
                kept = Kept(moment, 0, value)  # never written again, see State.commit
            else:
                dtype = self.record.dtype.get(path, value.dtype)
                kept = Kept(moment, value.data_ptr(), *self._copier.copy(value.detach(), dtype))
            self._kept[path].append(kept)
            self.snapshots += 1
            self.snapshot_bytes += kept.value.numel() * kept.value.element_size()

    # --- afterwards ----------------------------------------------------------------------------

    def value(self, path: str, moment: int) -> Tensor:
        """Return the value of `path` at a moment, as a copy.

        Raises: RecordError for a moment that was not kept.
        """
        slot = self.state.slots[path]
        if slot.is_series:
            return self._series(path, moment)
        if path not in self._kept:
            return slot.home.clone()
        entries = self._kept[path]
        self._refuse_unkept(path, moment)
        kept = entries[bisect_right(entries, moment, key=lambda entry: entry.moment) - 1]
        if kept.mark is not None:
            self._copier.host_waits_for(kept.mark)
        return kept.value.clone()

    def _series(self, path: str, moment: int) -> Tensor:
        slot = self.state.slots[path]
        now = slot.now if self._frozen is None else self._frozen[path]
        if not self.record.gradient:
            now = now.detach()
        step, index = divmod(moment - 1, len(self.names))
        writer = next(
            (i for i, writes in enumerate(self._writes) if path in writes), len(self.names) - 1
        )
        entries = 0 if moment == 0 else step + (index >= writer)
        known = torch.arange(now.shape[-1], device=now.device) < entries
        return torch.where(known, now, slot.initial)

    def _refuse_unkept(self, path: str, moment: int) -> None:
        if moment == 0 or path not in self._changing:
            return
        step, index = divmod(moment - 1, len(self.names))
        every = self.record.every
        if step % every:
            raise RecordError(
                f"{path!r} was not kept at step {step}: Record(every={every}) keeps it at the "
                f"start and at steps 0, {every}, {2 * every}, …"
            )
        if step in self._at_step_end and index < len(self.names) - 1:
            raise RecordError(
                f"{path!r} was kept at the end of step {step} only, whose substeps a program ran "
                f"in one; for snapshots after {self.names[index]!r} use Executor(…, fused=False)"
            )
