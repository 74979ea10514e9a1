"""The version, apart from the face so that nothing has to import that."""

__version__ = "0.1.0"
