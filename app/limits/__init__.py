"""Limits: how much of the server one user, address or connection may use."""
