"""What ranks do, and what they owe."""
