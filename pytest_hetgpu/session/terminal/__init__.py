"""The terminal while a run goes on, and what is new at its end."""
