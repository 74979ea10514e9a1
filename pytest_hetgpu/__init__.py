"""Compatibility matrices of GPUs, transports and collectives, run by pytest."""

__version__ = "0.1.0"
