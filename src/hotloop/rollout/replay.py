"""A prioritised replay: the newest transitions in a ring, drawn in proportion to priorities.

A transition is a window of n steps (`hotloop.ops.n_step_windows`): an observation, the action taken
there, the discounted rewards, the observation arrived at, and the discount of its value.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.data.layout import Tree, leaves, tree_map
from hotloop.errors import ShapeError, expect_whole
from hotloop.ops import draw_by_priority, importance_weights, set_priorities, sum_tree
from hotloop.ops.arguments import from_0_to_1

Array = NDArray[Any]
Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]

# Added to errors: what was learned well may be drawn again.
FLOOR = 1e-6


class Transitions(NamedTuple):
    """n transitions, each part with n rows.

    obs, next_obs: trees of (n, ...). action: tree of (n, ...). reward, discount: (n,), the target
    of a transition is reward + discount · V(next_obs).
    """

    obs: Tree
    action: Tree
    reward: Array
    discount: Array
    next_obs: Tree


@dataclass(frozen=True)
class Drawn:
    """Transitions that were drawn. number, weight: (n,).

    number: of each transition, counted from the first that was ever added. weight: what corrects
    for drawing it more often than others, 1 at most.
    """

    number: Ints
    weight: Doubles
    transitions: Transitions


class Found(NamedTuple):
    """Transitions of a replay, with the number and the priority of each, (n,)."""

    number: Ints
    priority: Doubles
    transitions: Transitions


class Replay(Protocol):
    """What a learner needs of a replay, wherever the transitions lie."""

    def __len__(self) -> int:
        """Transitions that it holds."""
        ...

    def add(self, transitions: Transitions, error: Array) -> None:
        """Add transitions, in the place of the oldest; error: (n,), the first of each."""
        ...

    def draw(self, count: int, rng: np.random.Generator, *, beta: float) -> Drawn | None:
        """Draw transitions by priority; None if all that it held was lost meanwhile."""
        ...

    def set_errors(self, number: Ints, error: Array) -> None:
        """Set the errors of transitions that were drawn; those that are gone since are left out."""
        ...

    def figures(self) -> dict[str, float]:
        """What is shown of it, by name."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything in it; every replay of this capacity can go on from it."""
        ...

    def load_state_dict(self, state: dict[str, Any], example: Transitions) -> None:
        """Take over what `state_dict` gave; example: transitions of the same kind, any number."""
        ...

    def close(self) -> None:
        """End the processes that it has. Idempotent."""
        ...


class PrioritisedReplay:
    """The newest `capacity` transitions, drawn by priority.

    The priority of a transition is (|error| + 10⁻⁶)^exponent; exponent 0 draws all equally.
    Memory is taken with the first transitions, for all of them.
    Source: Schaul et al. 2016, section 3.3.

    Raises: SettingError for settings.
    """

    def __init__(self, capacity: int, *, exponent: float = 0.6) -> None:
        expect_whole("replay: capacity", capacity, 1)
        [self.exponent] = from_0_to_1("replay", exponent=exponent)
        self.capacity = int(capacity)
        self.added = 0  # transitions since it was made
        self._tree = sum_tree(capacity)
        self._held: Transitions | None = None

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        held = () if self._held is None else leaves(self._held)
        return int(self._tree.nbytes + sum(array.nbytes for array in held))

    def add(self, transitions: Transitions, error: Array) -> None:
        """Add transitions, in the place of the oldest; error: (n,), the first of each.

        Raises: ShapeError for errors that are not finite, or transitions unlike those before.
        """
        self.restore(transitions, self._priority(error))

    def restore(self, transitions: Transitions, priority: Doubles) -> None:
        """Add transitions whose priorities (n,) are known, in the place of the oldest.

        Raises: ShapeError for priorities that are not finite, or transitions unlike those before.
        """
        count = len(transitions.reward)
        if self._held is None:
            self._held = Transitions(*tree_map(self._room, transitions))
        kept = slice(max(0, count - self.capacity), count)
        place = (self.added + np.arange(count)[kept]) % self.capacity
        set_priorities(self._tree, place, priority[kept])

        def write(held: Array, given: Array) -> None:
            if given.shape[1:] != held.shape[1:]:
                raise ShapeError(
                    f"replay: expected transitions of {held.shape[1:]}, got {given.shape[1:]}"
                )
            held[place] = given[kept]

        tree_map(write, self._held, transitions)
        self.added += count

    def draw(self, count: int, rng: np.random.Generator, *, beta: float) -> Drawn:
        """Draw `count` transitions, one from each of `count` equal parts of the total.

        beta: how far the weights correct for the priorities, see `importance_weights`.
        Raises: SettingError for an empty replay.
        """
        found = self.find(stratified(count, rng))
        weight = importance_weights(found.priority / self.total, len(self), beta=beta)
        return Drawn(found.number, weight, found.transitions)

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._tree[1])

    def find(self, uniform: Doubles) -> Found:
        """Return the transitions at which the sum of priorities passes u of the total.

        uniform: (n,), numbers u of [0, 1). Raises: SettingError for an empty replay.
        """
        return self._rows(draw_by_priority(self._tree, uniform))

    def by_age(self, start: int, stop: int) -> Found:
        """Return transitions by their age: from the oldest, 0, to the newest, `len` - 1."""
        oldest = self.added - len(self)
        return self._rows((oldest + np.arange(start, min(stop, len(self)))) % self.capacity)

    def set_errors(self, number: Ints, error: Array) -> None:
        """Set the errors of transitions that were drawn; those that are gone since are left out.

        Raises: ShapeError for errors that are not finite, and for numbers not given out yet.
        """
        expect_given_out(number, self.added)
        here = number >= self.added - self.capacity
        set_priorities(self._tree, number[here] % self.capacity, self._priority(error[here]))

    def figures(self) -> dict[str, float]:
        """How many transitions it holds."""
        return {"replay_size": float(len(self))}

    def close(self) -> None:
        """Do nothing: its memory goes when it is dropped."""

    # --- what is saved -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything in it: arrays, without those of the places that are still empty."""
        arrays = [] if self._held is None else list(leaves(self._held))
        half, held = len(self._tree) // 2, len(self)
        return {
            "added": self.added,
            "priority": self._tree[half : half + held].copy(),
            "transitions": [array[:held].copy() for array in arrays],
        }

    def load_state_dict(self, state: dict[str, Any], example: Transitions) -> None:
        """Take over what `state_dict` gave; example: transitions of the same kind, any number.

        Raises: ShapeError for a state of another replay; nothing is changed then.
        """
        saved = SavedReplay.of(state, self.capacity, example)
        held = len(saved.priority)
        tree = sum_tree(self.capacity)
        set_priorities(tree, np.arange(held), saved.priority)
        self._tree, self.added, self._held = tree, saved.added, None
        if held:
            self._held = Transitions(*tree_map(self._room, example))
            for array, part in zip(leaves(self._held), saved.parts, strict=True):
                array[:held] = part

    # --- parts -----------------------------------------------------------------------------------

    def _room(self, rows: Array) -> Array:
        return np.empty((self.capacity, *rows.shape[1:]), rows.dtype)

    def _priority(self, error: Array) -> Doubles:
        priority: Doubles = (np.abs(error, dtype=np.float64) + FLOOR) ** self.exponent
        return priority

    def _rows(self, place: Ints) -> Found:
        held = self._held
        assert held is not None  # else nothing has a priority
        return Found(
            self._number(place),
            self._tree[len(self._tree) // 2 + place],
            Transitions(*tree_map(lambda array: array[place], held)),
        )

    def _number(self, place: Ints) -> Ints:
        """The numbers of the transitions that lie in places."""
        newest = self.added - 1
        return newest - (newest - place) % self.capacity


class SavedReplay(NamedTuple):
    """The state of a replay: transitions added since it was made, and those held, by place.

    priority: (n,); parts: the leaves of the transitions, (n, ...). Number k lies in place k modulo
    the capacity.
    """

    added: int
    priority: Doubles
    parts: list[Array]

    @classmethod
    def of(cls, state: dict[str, Any], capacity: int, example: Transitions) -> "SavedReplay":
        """Read what a replay's `state_dict` gave. Raises: ShapeError for that of another replay."""
        added, priority = int(state["added"]), np.asarray(state["priority"])
        held = min(added, capacity)
        parts = [np.asarray(part) for part in state["transitions"]]
        kinds = [(array.dtype, array.shape[1:]) for array in leaves(example)]
        found = [(part.dtype, part.shape[1:]) for part in parts]
        # Of no transitions, there are no parts.
        lengths = {len(part) for part in parts} <= {held}
        if priority.shape != (held,) or (held and not (lengths and found == kinds)):
            raise ShapeError(
                f"replay: state: expected {held} transitions of {kinds}, got {priority.shape} and "
                f"{[(part.dtype, part.shape) for part in parts]}"
            )
        return cls(added, priority, parts)


def stratified(count: int, rng: np.random.Generator) -> Doubles:
    """Draw numbers of [0, 1) in rising order, one from each of `count` equal parts."""
    uniform: Doubles = np.minimum((np.arange(count) + rng.random(count)) / count, BELOW_1)
    return uniform


def expect_given_out(number: Ints, added: int) -> None:
    """Refuse numbers of transitions that were never added, with ShapeError."""
    unknown = number[(number < 0) | (number >= added)]
    if len(unknown):
        raise ShapeError(
            f"replay: number: expected those of transitions that were drawn, from 0 and below "
            f"{added:,}, got {unknown[0]:,}; set errors with the numbers of a draw"
        )


BELOW_1 = np.nextafter(1.0, 0.0)
