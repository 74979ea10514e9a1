"""What foreign benchmarks print, read as measurements and checks: one file a family of programs."""
