"""Files that users write: matrices, inventories, known failures."""
