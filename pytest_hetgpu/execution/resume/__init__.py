"""Resuming a run: which cells are reused, which run again, and whether the inputs are unchanged."""
