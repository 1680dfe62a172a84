"""Commands that put documents in, keep them in step with folders, describe them, and move them from home to home."""
