"""Fast forms of landmark attention. Each has a plain twin in `model.attention` and a test that compares values and
gradients.
"""
