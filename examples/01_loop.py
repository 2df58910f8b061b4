"""You will see how fast a small training loop is, and which of its stages holds it back.

    hotloop benchmark examples/01_loop.py:make_loop
    hotloop simplify  examples/01_loop.py:make_loop --budget 10

The first way in: a function that returns a `Loop`. hotloop calls its body, so it can put the
state back between the arms of an experiment.
"""

import numpy as np

import hotloop


class Learner:
    """Fits a line to batches by gradient descent."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.weights = np.zeros(64)

    def load(self) -> np.ndarray:
        return self.rng.normal(size=(4096, 64))

    def augment(self, batch: np.ndarray) -> np.ndarray:
        return np.sort(batch, axis=1)

    def update(self, batch: np.ndarray) -> None:
        error = batch @ self.weights - 1.0
        self.weights -= 1e-6 * (batch.T @ error)


def make_loop() -> hotloop.Loop:
    learner = Learner()
    load = hotloop.stage("load", learner.load, effect="stateful")  # it draws random numbers
    augment = hotloop.stage("augment", learner.augment, effect="pure")
    update = hotloop.stage("update", learner.update, effect="stateful")  # it changes the weights

    def body() -> int:
        batch = load()
        update(augment(batch))
        return len(batch)

    return hotloop.Loop(body=body, unit="samples", state=[learner])
