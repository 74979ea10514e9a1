"""Log dialects: one file for each kind of failure text."""
