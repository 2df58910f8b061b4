"""A script that marks its iterations and has no stages."""

import itertools
import sys

from loops import spin

import hotloop

endless = "--batches" not in sys.argv
batches = itertools.count() if endless else range(int(sys.argv[2]))
for _ in hotloop.iterations(batches, unit="samples", units=lambda _batch: 10):
    spin(6000)
print("past the loop")
