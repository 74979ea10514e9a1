"""Inventory sources: files and commands that list hosts, one file per kind."""

EXAMPLES = "hostfile:PATH, slurm:PATH, kubernetes:PATH"
"""Some of them, as an option takes them."""
