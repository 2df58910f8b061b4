"""Learners, one file each, to be read from top to bottom. They need the `torch` extra."""
