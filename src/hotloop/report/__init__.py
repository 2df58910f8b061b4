"""Saved runs, drawn again: in the terminal, while they run, and as one page."""
