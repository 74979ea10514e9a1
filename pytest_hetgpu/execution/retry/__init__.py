"""Attempts at cells: whether one is made again, until when, on which nodes, and with how much output."""
