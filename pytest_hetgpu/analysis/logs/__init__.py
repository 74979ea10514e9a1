"""One streaming pass over a log: lines, parser matches, records of ranks, versions."""
