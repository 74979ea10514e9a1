"""Inventory files: the hosts, users and engines behind the hardware names of a matrix."""
