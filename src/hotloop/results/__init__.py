"""Measurements as functions and their results as objects, for Python and for the commands.

A result shows the run that it holds as text, as a page and as JSON. `hotloop` itself hands out what
users need of it; each module is loaded at its first use, as a side of a comparison needs one only.
"""
