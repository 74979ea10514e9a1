"""Extension types, one file per variant, and the registry that finds shipped and installed ones."""
