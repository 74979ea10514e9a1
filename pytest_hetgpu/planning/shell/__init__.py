"""A Job as shell lines that a person can paste."""
