"""The check of written answers: sentences looked up in the documents, and what becomes of what they do not support."""
