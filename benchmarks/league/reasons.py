"""Why predictions missed, loop by loop, as far as it is known; for the page."""

REASONS = {
    "memory-three": (
        "what the fix left of the stage's time was measured as 53% in this run and as 44% in the "
        "one before, when the prediction held. The error of that measurement was not a part of "
        "what is allowed; since then it is"
    ),
    "threads-arrays": (
        "two threads move arrays through one memory. What computes in the stage's place for half "
        "of its time takes less of that from the loop than half of the stage does"
    ),
    "tianshou": (
        "half of the repetitions is more than half of an update, which prepares the batch first; "
        "how much could not be measured, for what the loop compiles belongs to another process"
    ),
    "bursts-20-thread": (
        "not explained; the version before was 0.5 points off. Two threads share the interpreter "
        "lock, and the interval was 13 points wide"
    ),
    "cleanrl_dqn": (
        "not explained. Without its log the other stages are faster too, by a benchmark of "
        "both versions: 0.36 ms of forward + backward instead of 0.59. In the arm without the log "
        "they are not"
    ),
    "skrl_ppo": (
        "2.4 points more than both errors allow. Without its checkpoints the script also spends "
        "less outside of all stages, by a benchmark of both versions; that is 43%"
    ),
    "tianshou_dqn": "0.7 points more than both errors allow, with truths from four pairs",
    "transformers_trainer": (
        "not explained. All that saves is one stage since the newest version; with its tensors "
        "alone, 16.2% were predicted"
    ),
    "collects-outside": "not explained; the version before, with another cause, was 2.8 points off",
}
