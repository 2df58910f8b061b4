"""A script with stages around its `for` loop, and nothing else of hotloop."""

import itertools

from loops import spin

import hotloop

train = hotloop.stage("train", spin, effect="pure")
for _ in hotloop.stage("load", itertools.count(), effect="effectful"):
    train(6000)
