"""Learners, one file each, to be read from top to bottom. They need the `torch` extra.

What acts in worker processes does not: `actor`, `distributions`, `masks` and `observations` need
NumPy alone.
"""
