"""A user's script under measurement: how it starts, iterates, is stopped, and ends."""
