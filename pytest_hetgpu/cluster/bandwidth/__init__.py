"""What the way between the nodes of a placement can carry, found in the run itself: a limit beside each bandwidth."""
