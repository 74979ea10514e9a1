"""Parsers of other projects' benchmarks: output to measurements and checks, one file per family of programs."""
