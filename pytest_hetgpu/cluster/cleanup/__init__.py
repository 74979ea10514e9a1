"""What outlives a run: whose everything is, what is kept account of, and who removes what a dead run left."""
