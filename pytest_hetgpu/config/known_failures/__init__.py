"""Known failures: established causes of signatures. The entries are YAML, one file per area."""
