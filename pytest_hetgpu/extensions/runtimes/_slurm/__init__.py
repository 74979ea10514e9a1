"""Slurm allocations: their request, wait, supervision, and release."""
