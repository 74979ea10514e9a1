"""A run taken up again: what of it is kept, what is still to be done, and whether all is as it was."""
