"""Suggestions: a short description of each document, and questions that it can really answer."""
