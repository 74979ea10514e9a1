"""Where users have their hosts written down: one file a kind of source."""

EXAMPLES = "hostfile:PATH, slurm:PATH, kubernetes:PATH"
"""Some of them, as an option takes them."""
