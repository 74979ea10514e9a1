"""Scenario to Job: the exact commands of a cell. Pure."""
