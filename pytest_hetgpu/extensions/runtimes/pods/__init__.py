"""Nodes that are pods: their settings, and the names that their objects go by. Pure."""
