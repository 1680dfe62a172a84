"""Tables of PDF pages: where they are, and their rows as sentences."""
