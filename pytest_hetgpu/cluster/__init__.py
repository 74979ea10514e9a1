"""Nodes of a placement: provisioning, ssh, facts, leases, bandwidth between them, cleanup."""
