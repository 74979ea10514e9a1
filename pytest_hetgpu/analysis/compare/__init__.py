"""Differences between runs: `hetgpu compare`."""
