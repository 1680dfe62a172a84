"""Checkpoints that were trained to talk: their network as it is, and the frame of their own chat template."""
