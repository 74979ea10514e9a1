"""Allocations of Slurm's: asked for, waited for, watched, given back."""
