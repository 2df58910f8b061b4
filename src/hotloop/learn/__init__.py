"""Learners. Each is one file to be read from top to bottom, and needs the `torch` extra."""
