"""Reports of a run, built from its journal."""
