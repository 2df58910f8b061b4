"""The loops of the prediction league, how their truth is measured, and what is said of both."""
