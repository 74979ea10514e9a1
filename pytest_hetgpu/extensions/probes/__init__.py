"""Probes of a node's facts: one file per subject, one round trip for all."""
