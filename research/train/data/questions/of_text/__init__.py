"""Questions made of training text: what it explains, lists, tabulates, describes and says of itself."""
