"""Models that come with hotloop; each is a package or module with a `model` function."""
