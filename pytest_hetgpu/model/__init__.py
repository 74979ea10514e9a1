"""Nouns of the project as plain data. Modules here import nothing else of the package."""
