"""Processes that a launcher such as `torchrun` starts as one job, measured together."""
