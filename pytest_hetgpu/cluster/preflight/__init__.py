"""Warnings about nodes before a cell runs."""
