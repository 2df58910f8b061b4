"""Searches over choices with planted speeds, on a clock of their own."""

import math

import pytest

from hotloop.optimize.bench import TrialError
from hotloop.optimize.search import NEW_ROUNDS, RACING_SHARE, START_ALONE, Search
from optimize.planted import BATCH, COPY, LOOPS, PINNED, WORKERS, Planted


def searched(name: str, seed: int, noise: float = 0.02, budget_s: float = 20.0) -> tuple:
    levers, speed = LOOPS[name]
    bench = Planted(levers, speed, noise=noise, drift=0.2, seed=seed)
    search = Search(bench.space, bench, budget_s, bench.clock, seed=seed)
    search.run()
    assert bench.opened == 0, "everything that was opened is closed"
    return bench, search


def speed_of(bench: Planted, choice) -> float:
    return bench.speed(bench.space.options(choice))


@pytest.mark.parametrize("name", LOOPS)
def test_the_best_choice_is_found(name):
    bench, search = searched(name, seed=1, noise=0.0)
    assert speed_of(bench, search.best) >= 0.98 * bench.best()
    assert search.gain is not None
    assert search.gain.value == pytest.approx(
        speed_of(bench, search.best) / speed_of(bench, bench.space.start)
    )


@pytest.mark.slow
def test_planted_optima_are_found_in_nine_of_ten_runs_and_nothing_slower_is_ever_taken():
    found = worse = 0
    for name in LOOPS:
        for seed in range(12):
            bench, search = searched(name, seed, budget_s=40.0)
            speed, start = speed_of(bench, search.best), speed_of(bench, bench.space.start)
            found += speed >= 0.98 * bench.best()
            worse += speed < start
    assert worse == 0
    assert found >= 54


def test_where_nothing_gains_the_start_is_kept():
    bench, search = searched("nothing gains", seed=3, noise=0.05)
    assert search.best == bench.space.start
    assert search.gain is not None
    assert search.gain.value == 1


def test_a_gain_below_what_is_worth_it_changes_nothing():
    bench = Planted([WORKERS], lambda options: 1000 + int(options["workers"]))
    search = Search(bench.space, bench, 10, bench.clock, worth=0.02)
    search.run()
    assert search.best == bench.space.start
    assert search.over == "every choice was tried"


def test_what_needs_too_much_memory_is_noted_and_the_search_goes_on():
    bench, search = searched("a cliff in memory", seed=2)
    refused = [trial for trial in search.trials if trial.problem]
    assert refused
    assert all("memory" in str(trial.problem) for trial in refused)
    assert all(math.isnan(trial.ratio) for trial in refused)
    assert speed_of(bench, search.best) == bench.best()


@pytest.mark.parametrize("open_s", [2.0, 5.0, 9.0])
def test_nothing_is_made_ready_that_could_not_race_any_more(open_s):
    levers, speed = LOOPS["one place among many"]
    bench = Planted(levers, speed, open_s=open_s)
    Search(bench.space, bench, 40, bench.clock).run()
    # The last part has a least number of rounds, and its choice is made ready and checked anew.
    assert bench.now_s <= 40 + 2 * open_s + 2 * bench.final_rounds * bench.turn_s


def test_a_choice_that_takes_long_to_make_ready_races_for_a_share_of_that_time():
    levers, speed = LOOPS["one place among many"]
    bench = Planted(levers, speed, noise=0.05, open_s=4.0, places=2)
    search = Search(bench.space, bench, 100, bench.clock)
    search.run()
    longest = max(trial.rounds for trial in search.trials)
    # A quarter of two openings, for three that take turns.
    assert longest >= RACING_SHARE * 2 * bench.open_s / (3 * bench.turn_s) > NEW_ROUNDS


@pytest.mark.long
def test_all_that_race_next_are_named_before_the_first_of_them_is_opened():
    levers, speed = LOOPS["one place among many"]
    bench = Planted(levers, speed, places=3)
    search = Search(bench.space, bench, 20, bench.clock)
    search.run()
    assert bench.begun == [trial.choice for trial in search.trials]


def test_what_costs_no_opening_is_tried_in_what_was_opened():
    # Pinned memory helps only with eight workers, which alone change nothing.
    def speed(options):
        return 2000.0 if options["workers"] == 8 and options["pinned"] else 1000.0

    bench = Planted([WORKERS, PINNED], speed, noise=0.01, open_s=2.0, places=1, free=("pinned",))
    search = Search(bench.space, bench, 100, bench.clock)
    search.run()
    assert dict(search.best) == {"workers": 8, "pinned": True}
    tried = [dict(trial.choice) for trial in search.trials]
    alone = tried.index({"workers": 8, "pinned": False})
    assert tried[alone + 1] == {"workers": 8, "pinned": True}


def test_a_rare_long_iteration_in_the_first_turn_does_not_hide_what_is_faster():
    # One turn in eight takes four times as long: three times as fast is then 2.2 times as fast.
    bench = Planted(
        [WORKERS],
        lambda options: 1000.0 if options["workers"] == 1 else 3000.0,
        noise=0.01,
        open_s=4.0,
        places=2,
        same_work=True,
        pauses=8,
    )
    search = Search(bench.space, bench, 100, bench.clock)
    search.run()
    assert search.best != bench.space.start


def test_where_the_start_alone_uses_the_budget_that_is_said():
    levers, speed = LOOPS["one place among many"]
    bench = Planted(levers, speed, open_s=30)
    search = Search(bench.space, bench, 40, bench.clock)
    search.run()
    assert (search.over, search.trials) == (START_ALONE, [])


class Breaks(Planted):
    """Choices of more than two workers fail in their third turn."""

    def open(self, choice, *, checked=False):
        entrant = super().open(choice, checked=checked)
        turns, run = [], entrant.turn

        def turn() -> float:
            turns.append(1)
            if int(dict(choice)["workers"]) > 2 and len(turns) > 2:
                raise TrialError("it crashed")
            return run()

        entrant.turn = turn  # type: ignore[method-assign]
        return entrant


def test_what_crashes_later_drops_out_alone():
    bench = Breaks([WORKERS], lambda options: 100.0 * int(options["workers"]), noise=0.3)
    search = Search(bench.space, bench, 40, bench.clock)
    search.run()
    assert dict(search.best)["workers"] == 2
    assert {trial.problem for trial in search.trials} >= {"it crashed"}
    assert bench.opened == 0


class Refuses(Planted):
    """Pinned memory changes what the loop computes, which is known once that is checked."""

    def open(self, choice, *, checked=False):
        if checked and self.space.options(choice)["pinned"]:
            raise TrialError("it changes what the loop computes")
        return super().open(choice, checked=checked)


@pytest.mark.long
def test_what_changes_the_result_is_refused_before_others_race_against_it():
    def speed(options) -> float:
        return 10.0 * int(options["batch"]) * (5.0 if options["pinned"] else 1.0)

    bench = Refuses([PINNED, WORKERS, BATCH, COPY], speed)
    search = Search(bench.space, bench, 40, bench.clock)
    search.run()
    assert dict(search.best)["batch"] == 256
    assert not dict(search.best)["pinned"]
    pinned = [bool(dict(each.choice)["pinned"]) for each in search.trials]
    first = search.trials[pinned.index(True)]
    assert "changes what the loop computes" in str(first.problem)
    # Once it has failed alone nothing else is tried with it, as long as there is anything else.
    last_without = len(pinned) - 1 - pinned[::-1].index(False)
    assert sum(pinned[:last_without]) <= bench.places
    assert bench.opened == 0


def test_an_interrupt_keeps_what_was_found_and_closes_everything():
    bench = Planted([WORKERS, BATCH], lambda options: float(int(options["batch"])))
    search = Search(bench.space, bench, 100, bench.clock)

    def interrupted(what: str) -> None:
        if what == "the best against the start":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search.run(interrupted)
    assert bench.opened == 0
    assert search.trials
    assert dict(search.best)["batch"] == 256
    assert search.gain is None, "it has not been measured against the start"


def test_a_start_that_does_not_run_is_an_error():
    bench = Planted([WORKERS], lambda _options: math.nan)
    with pytest.raises(TrialError, match="memory"):
        Search(bench.space, bench, 10, bench.clock).run()
