"""The run folder: journal, events, cells, files, history, redaction."""
