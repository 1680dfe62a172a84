"""What whoever runs a server needs: figures, readiness, logs, an orderly end."""
