"""Levers and their choices: which act, which are equal, what is proposed."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.errors import LoopError, SettingError
from hotloop.loop import Lever, Loop
from hotloop.optimize.libraries import set_levers
from hotloop.optimize.proposals import Proposals
from hotloop.optimize.space import Space, keyed, written

BACKEND = Lever("backend", ("serial", "process"), now="serial")
WORKERS = Lever("workers", (1, 2, 4), now=2, applies=lambda options: options["backend"] != "serial")
COPY = Lever("copy", (True, False), now=True)
COUNT = Lever("count", (0, 1), now=1)


def test_a_lever_that_does_not_act_makes_no_other_choice():
    space = Space([BACKEND, WORKERS])
    assert space.start == (("backend", "serial"),)
    assert len(list(space.all())) == 4
    assert space.most == 6
    assert space.changes(space.choice({"backend": "process"})) == {
        "backend": "process",
        "workers": 2,
    }


def test_true_is_not_one():
    space = Space([COPY, COUNT])
    assert len({keyed(each) for each in space.all()}) == 4
    assert space.changes(space.choice({"copy": False})) == {"copy": False}


def test_neighbours_differ_in_one_lever_and_begin_with_the_one_that_promises_most():
    space = Space([BACKEND, WORKERS, COPY])
    found = list(space.neighbours(space.start, order=["copy"]))
    assert [space.changes(each) for each in found] == [
        {"copy": False},
        {"backend": "process", "workers": 2},
    ]


def test_all_options_of_a_lever_that_promises_most_of_the_time_come_first():
    space = Space([COPY, BACKEND, Lever("depth", (1, 2, 4, 8), now=1)])
    found = space.neighbours(space.start, order=["backend", "depth"], whole={"depth"})
    assert [space.changes(each) for each in found] == [
        *({"depth": depth} for depth in (2, 4, 8)),
        {"backend": "process"},
        {"copy": False},
    ]


def test_saved_options_are_checked():
    found: dict[str, object] = {}
    backend = Lever("backend", BACKEND.options, "serial", apply=partial(found.__setitem__, "b"))
    workers = Lever("workers", WORKERS.options, 2, apply=partial(found.__setitem__, "workers"))
    set_levers([backend, workers], {"backend": "process", "workers": 4})
    assert found["workers"] == 4
    with pytest.raises(SettingError, match="did you mean 'backend'"):
        set_levers([backend, workers], {"backnd": "process"})
    with pytest.raises(SettingError, match=r"expected one of \['serial', 'process'\]"):
        set_levers([backend, workers], {"backend": "threads"})


def test_what_changes_the_result_is_known_from_all_that_is_changed():
    rounds = Lever("threads", (1, 2), now=1, keeps_result=1e-3)
    learns = Lever("batch", (1, 2), now=1, keeps_result=False)
    space = Space([COPY, rounds, learns])
    keeps = space.keeps_result
    assert keeps(space.start) is True
    assert keeps(space.choice({"copy": False})) is True
    assert keeps(space.choice({"copy": False, "threads": 2})) == 1e-3
    assert keeps(space.choice({"threads": 2, "batch": 2})) is False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lever("a", (1, 1), now=1), "stands twice"),
        (lambda: Lever("a", ([],), now=1), "expected numbers, text"),
        (lambda: Lever("a", (1, 2), now=1, area="speed"), "area: expected one of"),
        (lambda: Lever("a", (1, 2), now=1, keeps_result=2.0), "keeps_result"),
        (lambda: Loop(lambda: 1, levers=[COPY, COPY]), "expected different names"),
    ],
)
def test_levers_that_cannot_be_are_refused(make, message):
    with pytest.raises((SettingError, LoopError), match=message):
        make()


def test_what_the_loop_has_is_an_option_too():
    assert Lever("a", (1, 2), now=3).options == (1, 2, 3)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_every_choice_is_proposed_once_where_they_are_few(sizes, seed):
    levers = [Lever(f"l{k}", tuple(range(size)), now=0) for k, size in enumerate(sizes)]
    space = Space(levers)
    if space.most > 24:
        return
    proposals = Proposals(space, seed=seed)
    found = []
    while (choice := proposals.next()) is not None:
        proposals.tell(choice, None)
        found.append(keyed(choice))
    assert len(found) == len(set(found)) == space.most - 1
    assert keyed(space.start) not in found


def test_many_choices_are_proposed_without_repeats():
    space = Space([Lever(f"l{k}", tuple(range(5)), now=0) for k in range(4)])
    proposals, found = Proposals(space, seed=1), set()
    for _ in range(60):
        choice = proposals.next()
        assert choice is not None
        assert keyed(choice) not in found
        found.add(keyed(choice))
        proposals.tell(choice, float(dict(choice)["l1"]))


def test_options_as_a_reader_sees_them():
    assert written({"workers": 2, "copy": False}) == "workers=2 copy=False"
    assert written(()) == "as it is"
