"""The span reader, separate from the landmark model: question and passage in one window."""
