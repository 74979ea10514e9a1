"""Inventory sources: files and commands that list hosts, one file per kind."""
