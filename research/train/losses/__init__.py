"""What is minimised, as functions of a model and a batch."""
