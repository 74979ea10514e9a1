"""Where nodes run: the only room that starts anything."""
