"""The records that the library hands out."""
