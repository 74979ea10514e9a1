"""Nodes that a batch system gives: its settings, and its words for them. Pure."""
