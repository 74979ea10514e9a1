"""The terminal during a run, and the changes at its end."""
