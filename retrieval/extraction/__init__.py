"""Files to text that knows where every character stands. The way in is `retrieval.extraction.extract`."""
