"""Passages read once by an ordinary checkpoint, and put together for a question from their stored keys and values."""
