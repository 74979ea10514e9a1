"""What connects: one file a kind of fabric."""
