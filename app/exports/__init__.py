"""What leaves the library: an answer as a file, a citation, the rows that programs get."""
