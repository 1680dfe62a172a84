"""Files to text that knows where every character stands. `retrieval.extract` is the way in; this package does the work."""
