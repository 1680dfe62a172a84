"""How files get into the memory, and what keeps the memory consistent."""
