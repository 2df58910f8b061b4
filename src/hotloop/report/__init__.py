"""Reports of runs: in the terminal, while they run, and as one page."""
