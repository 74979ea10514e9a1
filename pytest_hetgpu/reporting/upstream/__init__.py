"""A failure as its upstream wants to receive it: the text of an issue, a script that reproduces it, and the files."""
