"""A process that choices run in, whose loop may come to its end before the search does."""

from collections.abc import Callable, Mapping

import pytest

from hotloop.loop.lever import Option
from hotloop.optimize.bench import LoopEnded, Stretch
from hotloop.optimize.process_bench import Host


class ShortTrial:
    """A process whose loop lasts for so many turns."""

    def __init__(self, turns: int) -> None:
        self.left, self.alive, self.options = turns, True, dict[str, Option]()

    def set(self, options: Mapping[str, Option]) -> None:
        self.options.update(options)

    def turn(self, _stretch: Stretch) -> float:
        if not self.left:
            self.alive = False
            raise LoopEnded("its loop ended")
        self.left -= 1
        return 7.0

    def close(self) -> None:
        self.alive = False


def started(turns: int) -> tuple[list[ShortTrial], Callable[[], ShortTrial]]:
    made: list[ShortTrial] = []

    def start() -> ShortTrial:
        made.append(ShortTrial(turns))
        return made[-1]

    return made, start


def test_a_loop_that_ends_between_turns_is_begun_anew_with_what_was_set() -> None:
    made, start = started(turns=2)
    host = Host(start)  # type: ignore[arg-type]
    assert [host.turn({"chunk": 4}, Stretch()) for _ in range(5)] == [7.0] * 5
    assert [each.options for each in made] == [{"chunk": 4}] * 3
    assert [each.alive for each in made] == [False, False, True]


def test_a_loop_that_does_not_last_for_one_turn_is_no_choice() -> None:
    made, start = started(turns=0)
    with pytest.raises(LoopEnded):
        Host(start).turn({}, Stretch())  # type: ignore[arg-type]
    assert [each.alive for each in made] == [False]
