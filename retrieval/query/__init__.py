"""The way of a question: search, quotation, answer, evidence."""
