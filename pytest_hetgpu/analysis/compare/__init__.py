"""What differs between runs: `hetgpu compare`."""
