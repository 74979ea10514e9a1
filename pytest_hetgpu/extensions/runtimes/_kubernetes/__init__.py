"""Pods as nodes: the requests to the cluster, and its answers."""
