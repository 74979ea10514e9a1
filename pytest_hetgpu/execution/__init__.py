"""The run of one cell: launch, remeasure, judge, retry, resume."""
