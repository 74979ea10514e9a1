"""Parts that runtimes with local processes share."""
