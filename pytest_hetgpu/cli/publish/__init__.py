"""`hetgpu comment` and `hetgpu issues`: results of a run, sent to GitHub or GitLab."""
