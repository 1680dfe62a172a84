"""A reader of its own beside the landmark model: question and passage in one window."""
