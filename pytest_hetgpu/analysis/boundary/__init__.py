"""The boundary of a failure: the condition under which cells fail in one way. Pure."""
