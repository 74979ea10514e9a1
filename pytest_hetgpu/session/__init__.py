"""Everything that imports pytest: options, fixtures, hooks, terminal, pytest-xdist."""
