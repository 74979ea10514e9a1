"""Reading matrix files."""
