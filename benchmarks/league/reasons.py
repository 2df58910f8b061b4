"""Why predictions missed, loop by loop, as far as it is known; for the page."""

REASONS = {
    "collects-outside": (
        "a collection takes a quarter to a third longer in the process that runs the experiment, "
        "with the same number of objects alive; why is not known"
    ),
    "collects-stage": "the same as collects-outside",
    "serial-arrays": (
        "what burns in a stage's place reads as much memory as the stage takes and returns, and "
        "this one reads arrays of its own besides: its neighbours find warmer caches than they will"
    ),
    "serial-nothing": "tests ran on the other core meanwhile; no cause in the loop is known",
    "memory-same": (
        "the stages share an array: with one free, the others find another part of it in the cache"
    ),
    "threads-arrays": (
        "two threads that both need a core: the loop has two courses, and its own truth was 40% in "
        "one minute and 2% in another"
    ),
    "threads-python": (
        "two threads share the interpreter lock; tests ran on the other core meanwhile, and who "
        "gets the lock next changed with it"
    ),
    "loader-2": (
        "the workers of an epoch are started by `iter`, which was no part of the stage when this "
        "was measured; it belongs to the first item since. Half of the work of an item is not half "
        "of what the loader takes"
    ),
    "bursts-20-thread": (
        "a stage k times faster beside a thread that computes: predicted by its duration when this "
        "was measured, by its processor time since"
    ),
    "covid": (
        "the free truth takes out a method of the runner, with what is around the stage; the "
        "replay leaves that in"
    ),
}
