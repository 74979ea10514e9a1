"""Removal of secrets from text and logs before they are stored."""
