"""Grouped softmax as kernels for a GPU (Triton), each with a twin in plain torch that says the same in fewer words."""
