"""Accelerator platforms: one file per platform."""
