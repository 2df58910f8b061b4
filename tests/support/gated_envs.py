"""An env that is slow for exactly as long as a test wants, on any machine."""

import time
from pathlib import Path

from hotloop.testing.synthetic import SyntheticEnv


class Gated(SyntheticEnv):
    """Steps once the gate, a file, is there."""

    def __init__(self, gate: Path, env_id: int = 0):
        super().__init__(env_id=env_id)
        self.gate = gate

    def step(self, action):
        while not self.gate.exists():
            time.sleep(0.001)
        return super().step(action)
