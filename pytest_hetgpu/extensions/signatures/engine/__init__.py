"""Parts of log parsers, and the merge of their matches into signatures: frames, tracebacks, stacks, order."""
