"""Pods as nodes: what is asked for, and how the cluster answers."""
