"""Nodes that are containers made for a run: their options, and the images that are built for them. Pure."""
