"""Learners, one file each, to be read from top to bottom. They need the `torch` extra.

`policies` has what they train, `training` what trains them until they are good enough.
"""
