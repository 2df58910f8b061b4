"""Running the pilot: the baseline and free stages in turns, to see what a switch of arms leaves.

`hotloop.simplify.pilot` reads what these blocks show.
"""

from hotloop.loop.conduct import Measurement, Request
from hotloop.loop.event import current_lane
from hotloop.simplify.arm_names import BASELINE, free_name
from hotloop.simplify.arms import first_arms
from hotloop.simplify.pilot import NO_PILOT, Pilot, Stretch, pilot_of, stretch_of
from hotloop.simplify.settings import SimplifySettings
from hotloop.simplify.trials import Trials

MAX_DOUBLINGS = 4
PILOT_ROUNDS = 3
PILOT_SHARE = 0.15  # of what is left of the budget, at most, goes into choosing the block
MOST_STAGES = 6
STRETCH_NS, STRETCH_ITERATIONS, LEAST_STRETCH, MOST_STRETCH = 100_000_000, 20, 4, 4096
# The fractional part of the golden ratio: multiples of it fill [0, 1) evenly.
GOLDEN = 0.6180339887498949


def run_pilot(
    trials: Trials,
    settings: SimplifySettings,
    block: int,
    iteration_ns: float,
    begin_ns: int,
    end_ns: int,
) -> Measurement[Pilot]:
    """Switch between arms, in stretches that become longer until they show what a switch leaves.

    block: iterations of a block as it would be without the pilot; begin_ns, end_ns: of the time
    that is left of the budget.
    """
    now = trials.control.clock.now_ns
    stages = [s for s in trials.record.stages_in_focus() if s.replaceable]
    share = PILOT_SHARE * (end_ns - begin_ns)
    affordable = int(share / (2 * PILOT_ROUNDS * LEAST_STRETCH * iteration_ns))
    if affordable < 1:
        # Iterations so long carry next to nothing from one to the next. Below 0: the budget is
        # over, as the preparations took long on a busy machine.
        return NO_PILOT
    stages = sorted(stages, key=lambda s: -s.share)[: min(affordable, MOST_STAGES)]
    free_arms = {free_name(s.name): s.name for s in stages}
    # Half of the time for the first try: a longer one may be needed.
    most = share / (2 * 2 * PILOT_ROUNDS * len(free_arms))
    stretch = min(max(STRETCH_NS, STRETCH_ITERATIONS * iteration_ns), most)
    stretch = max(stretch, LEAST_STRETCH * iteration_ns)
    for doubling in range(MAX_DOUBLINGS + 1):
        pilot = yield from _switch_arms(trials, settings, free_arms, stretch, block)
        spent = now() - begin_ns
        if pilot.settled or doubling == MAX_DOUBLINGS or 3 * spent > share:
            break
        stretch *= 2
    return pilot


def _switch_arms(
    trials: Trials,
    settings: SimplifySettings,
    free_arms: dict[str, str],
    stretch_ns: float,
    block: int,
) -> Measurement[Pilot]:
    """Switch between the baseline and arms with a free stage; an arm that raises is left out."""
    record = trials.record
    arms = first_arms(record, settings.aa_pairs)
    outermost = [stage.index for stage in record.stages if stage.inside is None]
    found: dict[tuple[str, str], list[Stretch]] = {}
    for repetition in range(PILOT_ROUNDS):
        for free in list(free_arms):
            for before, name in ((BASELINE, free), (free, BASELINE)):
                if free not in free_arms:
                    continue
                request = Request(
                    arms[name],
                    iterations=MOST_STRETCH,
                    seconds=stretch_ns * 1e-9,
                    before=trials.put_back,
                    phase="choosing the block length",
                )
                measured = yield from trials.attempt(request, (repetition * GOLDEN) % 1)
                if measured is None:
                    del free_arms[free]
                    continue
                found.setdefault((before, name), []).append(
                    stretch_of(measured, outermost, current_lane())
                )
                if name == BASELINE:
                    record.iterations_kept += len(measured.duration_ns)
                    trials.save_state()
    found = {pair: rows for pair, rows in found.items() if {*pair} & {*free_arms}}
    numbers = {stage.name: stage.index for stage in record.stages}
    return pilot_of(found, free_arms, numbers, block)
