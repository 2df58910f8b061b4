"""Work in parts: each is done once, all are over at the end, and failures come back."""

import threading

import pytest

from hotloop.sim.threads import in_threads


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_run_side_by_side_and_each_once(parts):
    together, done = threading.Barrier(parts), []

    def work(part: int) -> None:
        together.wait(30)  # ends only if all have begun
        done.append((part, threading.get_ident()))

    in_threads(work, parts)
    assert sorted(part for part, _ in done) == list(range(parts))
    assert len({thread for _, thread in done}) == parts
    assert (0, threading.get_ident()) in done


@pytest.mark.parametrize("failing", [0, 2])
def test_a_failure_comes_back_after_all_parts_are_over(failing):
    over = []

    def work(part: int) -> None:
        if part == failing:
            raise ValueError(f"part {part}")
        over.append(part)

    with pytest.raises(ValueError, match=f"part {failing}"):
        in_threads(work, 3)
    assert sorted([*over, failing]) == [0, 1, 2]
