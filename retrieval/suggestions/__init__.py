"""What a document is about: a short description, and questions that it can really answer."""
