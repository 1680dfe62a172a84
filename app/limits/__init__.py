"""How much of the server one person, address or connection may take."""
