"""Bandwidth between the nodes of a placement, measured in the run itself: an upper bound for each result."""
