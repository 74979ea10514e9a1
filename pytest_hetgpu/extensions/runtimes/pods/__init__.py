"""Nodes that are pods: their settings, and the names of their objects. Pure."""
