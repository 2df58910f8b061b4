"""The child process of the misuse check: step an env outside of an episode, which may crash."""

import contextlib
import copy
import pickle
import sys

import numpy as np


def main() -> None:
    """Read (make, max_steps, seed) from stdin; print each phase on stdout before it begins."""
    make, max_steps, seed = pickle.load(sys.stdin.buffer)
    env = make()
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    _announce("a step before the reset")
    # An exception is allowed; a crash or a hang is not.
    with contextlib.suppress(Exception):
        env.step(space.sample())
    env.close()
    env = make()
    _announce("an episode")
    env.reset(seed=seed)
    for _ in range(max_steps):
        _, _, terminated, truncated, _ = env.step(space.sample())
        if np.any(terminated) or np.any(truncated):
            break
    _announce("steps after the end")
    with contextlib.suppress(Exception):
        for _ in range(3):
            env.step(space.sample())
    _announce("close")
    with contextlib.suppress(Exception):
        env.close()


def _announce(phase: str) -> None:
    print(f"phase: {phase}", flush=True)


if __name__ == "__main__":
    main()
