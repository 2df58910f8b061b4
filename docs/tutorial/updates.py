"""The same training, its updates marked as iterations: what two versions are compared by."""

import hotloop
from train import ENVS, STEPS, main

main(hotloop.iterations(range(100_000), unit="env steps", units=lambda _: ENVS * STEPS))
