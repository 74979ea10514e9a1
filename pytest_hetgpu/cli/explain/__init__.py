"""The explanation of a log alone, without any other facts of its run."""
