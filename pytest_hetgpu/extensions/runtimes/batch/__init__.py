"""Nodes of a batch system: its settings and options. Pure."""
