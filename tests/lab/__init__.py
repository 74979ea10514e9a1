"""A real RoCE network in guests, for tests."""
