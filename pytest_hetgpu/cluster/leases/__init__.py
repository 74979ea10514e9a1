"""Who holds a host: one job a host at a time, whoever starts it and from wherever."""
