"""What is known of the nodes before a cell runs, and will break it."""
