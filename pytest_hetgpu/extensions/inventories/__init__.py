"""Where users have their hosts written down: one file a kind of source."""
