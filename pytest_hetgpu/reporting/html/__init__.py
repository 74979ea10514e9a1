"""`index.html`: a run as one page that opens from disk, without any network."""
