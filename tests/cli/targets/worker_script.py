"""A script that is interrupted: it cleans up after itself as it always would."""

import itertools
from pathlib import Path

from loops import spin
from sign import Sign

import hotloop

train = hotloop.stage("train", spin, effect="pure")
sign = Sign()
try:
    for _ in hotloop.iterations(itertools.count()):
        train(6000)
        sign.look()
finally:
    Path("closed").touch()
