"""How old the experience is that a learner learns from while its actors go on.

The lag of a fragment is the number of updates that the learner has made since the policy that
acted in it. By Little's law, fragments that were begun and not yet taken are L = X·(F + W), with X
fragments learned from per second, F seconds of a fragment and W seconds of waiting; and as each
update takes b of them, the mean lag is L/b.
"""

from dataclasses import dataclass

from hotloop.errors import expect_positive, expect_whole


@dataclass(frozen=True)
class Learning:
    """Actors and a learner that work at the same time.

    actors: K. fragment_s: F, seconds in which an actor makes a fragment. batch_fragments: b, that
    one update learns from. update_s: u, seconds of an update. queue_fragments: fragments of one
    actor that may wait; while as many do, it waits too.
    Raises: SettingError.
    """

    actors: int
    fragment_s: float
    batch_fragments: int
    update_s: float
    queue_fragments: int = 1

    def __post_init__(self) -> None:
        for name in ("actors", "batch_fragments", "queue_fragments"):
            expect_whole(name, getattr(self, name), 1)
        for name in ("fragment_s", "update_s"):
            expect_positive(name, getattr(self, name))


@dataclass(frozen=True)
class Staleness:
    """What becomes of a fragment. lag: updates since the policy that acted in it, in the mean;
    wait_s: seconds from its end until the learner takes its batch; busy: share of the time that
    the learner works.
    """

    fragments_per_s: float
    lag: float
    wait_s: float
    busy: float


def staleness(learning: Learning) -> Staleness:
    """The lag and the waiting in the steady state.

    While actors are slower than the learner, ρ = K·u/(F·b) < 1: a fragment waits for the others of
    its batch, (b − 1)/2 · F/K in the mean, and for the end of an update if it is ready before that,
    ρ·u/2. Else every place to wait is taken: the L fragments are one under way and all the places
    of each actor.
    """
    k, b = learning.actors, learning.batch_fragments
    made_per_s, most_per_s = k / learning.fragment_s, b / learning.update_s
    rho = made_per_s / most_per_s
    if rho < 1:
        per_s = made_per_s
        wait_s = (b - 1) / 2 / per_s + rho * learning.update_s / 2
    else:
        per_s = most_per_s
        wait_s = k * (1 + learning.queue_fragments) / per_s - learning.fragment_s
    fragments = per_s * (learning.fragment_s + wait_s)
    return Staleness(per_s, fragments / b, wait_s, min(1.0, rho))
