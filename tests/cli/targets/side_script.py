"""A script that marks its iterations and ends by itself after so many."""

import sys

from sides import work

import hotloop

for _ in hotloop.iterations(range(int(sys.argv[1]))):
    work(2_000)
