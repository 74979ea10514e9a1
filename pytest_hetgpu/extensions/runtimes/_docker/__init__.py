"""Parts of the Docker runtime."""
