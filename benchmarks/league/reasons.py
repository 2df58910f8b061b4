"""Why predictions missed, loop by loop, as far as it is known; for the page."""

_COLD = (
    "blocks began in caches that were another arm's: the first iterations with the stage free took "
    "up to twice as long. Since this was measured, the first milliseconds of a block are left out"
)
_COLLECTOR = (
    "a collection looked through what the experiment had recorded as well; since this was measured "
    "the collector passes that by"
)
_RESTLESS = (
    "the machine was more restless than in the other versions: the truth itself is known to a few "
    "points only, and changed by more within minutes"
)
REASONS = {
    "covid": _COLD,
    "covid-substeps": _COLD,
    "vector-env": _COLD + "; it may not be all of it",
    "collects-outside": _COLLECTOR,
    "collects-stage": _COLLECTOR,
    "serial-mixed": _RESTLESS,
    "serial-unequal": "not explained: both are off by one point, with intervals of one point",
    "checkpoints": "not explained: half a point, with an interval of a third of one",
    "loader-2": "not explained; the version before was 1.9 points off",
    "threads-waiting": "not explained; the version before was 0.4 points off",
    "stable-baselines3": _RESTLESS,
    "coroutines": (
        "a sleep of half the time takes more than half: waking up takes as long as before. The "
        "prediction is for a stage that takes half in all"
    ),
    "shared-lock": (
        "the thread that writes goes by the clock: how often it meets the loop at the lock depends "
        "on how the two fall into step, and its truth has been 4.2% to 6.3%"
    ),
    "bursts-20-thread": (
        "what was recorded of a call contains its wait for the interpreter lock. Taking that out "
        "of all calls alike made the long ones too short; since this was measured, it stays in"
    ),
    "ppo": "half of the epochs leaves 54% of an update: the first one follows other work",
    "serial-arrays": "half of the products take 53% of the time: the first one follows other work",
}
