"""A training script as it stands: its stages, its iterations and its phases, recognised."""
