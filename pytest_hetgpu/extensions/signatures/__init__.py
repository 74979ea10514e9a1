"""Log parsers: one file per kind of failure text."""
