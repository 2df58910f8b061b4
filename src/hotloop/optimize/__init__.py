"""Which lever helps, measured: changes tried on a loop, and advice on a user's own code."""
