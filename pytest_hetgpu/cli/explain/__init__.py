"""What a log says of its run, with nothing else known of it."""
