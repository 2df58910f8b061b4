"""Why predictions missed, loop by loop, as far as it is known; for the page."""

REASONS = {
    "collects-stage": (
        "a collection takes a little longer in the process that runs the experiment: what the "
        "experiment keeps is looked through too"
    ),
    "loader-0": "not explained: training free, loading alone is 2 points faster than predicted",
    "bursts-20-thread": (
        "what was recorded of a call contains its wait for the interpreter lock. Taking that out "
        "of all calls alike made the long ones too short; since this was measured, it stays in"
    ),
    "serial-arrays": (
        "half of the products take 52% of the time: the first of them follows other work and is "
        "slower than the rest; that is half of the difference"
    ),
    "ppo": "half of the epochs is less than half of an update: the advantages stay as they are",
    "vector-env": "not explained: both stages really gain more than was predicted",
    "coroutines": "not explained: an hour before, the truth was 32.2% ± 1.5 for the same fix",
    "shared-lock": (
        "the thread that writes goes by the clock: how often it meets the loop at the lock depends "
        "on how the two fall into step, and its truth was 6.3% ± 1.5 an hour before"
    ),
}
