"""Nodes that are containers which are made for a run: their options, and the images that are built for them. Pure."""
