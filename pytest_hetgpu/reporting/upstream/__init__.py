"""A failure in the form of its upstream: the text of an issue, a script that reproduces it, and the files."""
