"""Step 1 of the method: how fast a loop is, and where its time goes."""
