"""From a folder of weights to a `LandmarkModel`, and back."""
