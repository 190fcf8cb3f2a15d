"""How sums are gathered: chunks, threads, workers."""
