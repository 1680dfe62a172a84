"""From text and question sets to batches."""
