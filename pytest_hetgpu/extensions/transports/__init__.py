"""How ranks reach each other: one file a family; variants are YAML."""
