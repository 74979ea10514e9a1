"""Meanings of each tool's texts: tables with the upstream source that prints them."""
