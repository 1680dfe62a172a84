"""For the operator of a server: figures, readiness, logs, an orderly end."""
