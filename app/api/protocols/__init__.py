"""What other programs speak: tools of the Model Context Protocol, and chat as OpenAI's clients know it."""
