"""The runtimes: how nodes are provided and how commands start on them. No other package starts processes."""
