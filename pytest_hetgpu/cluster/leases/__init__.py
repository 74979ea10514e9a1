"""Leases of hosts: one job per host at a time, across all users and machines."""
