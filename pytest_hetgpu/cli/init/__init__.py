"""`hetgpu init`: a first matrix of what is there."""
