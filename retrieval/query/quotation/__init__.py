"""From the candidates to the sentence that is quoted: borders, asides, what a sentence announces, the choice."""
