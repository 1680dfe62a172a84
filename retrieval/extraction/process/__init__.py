"""Files are read in processes of their own: who may start one, what it is told, what it may cost, what comes back."""
