"""Parts of the class of a runtime, with the answers for hosts that are reached by ssh."""
