"""Text, boxes and page images of PDFs."""
