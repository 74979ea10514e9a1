"""Known failures: what is established about a signature. The entries are YAML, one file an area."""
