"""The paper's tables in small: every arm is the same network, trained on the same tokens (docs/paper.md)."""
