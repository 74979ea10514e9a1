"""What dialects are made of, and how their readings become one answer: frames, tracebacks, stacks, order."""
