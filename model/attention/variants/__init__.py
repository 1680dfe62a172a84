"""Research variants of landmark attention, for one text: other places of landmarks, a context-miss token."""
