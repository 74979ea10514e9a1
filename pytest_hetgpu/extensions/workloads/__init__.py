"""Workloads: the work of ranks, and the results that they must report."""
