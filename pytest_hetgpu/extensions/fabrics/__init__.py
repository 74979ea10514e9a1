"""Network fabrics: one file per kind."""
