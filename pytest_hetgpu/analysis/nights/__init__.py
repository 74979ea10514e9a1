"""Series of a measured quantity over nightly runs: steps, drifts and pairs of levels."""
