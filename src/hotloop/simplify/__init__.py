"""Step 2 of the method: what each part of a loop could gain, by experiment."""
