"""How ranks start."""
