"""What every operation on a library shares: the workspace and the scheduling of the model."""
