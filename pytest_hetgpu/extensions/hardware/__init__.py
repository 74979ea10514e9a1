"""What computes: one file a platform."""
