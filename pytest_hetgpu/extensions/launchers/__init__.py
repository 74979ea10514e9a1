"""Launchers of ranks."""
