"""An ordered list of small judges; the worst finding wins."""
