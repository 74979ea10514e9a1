"""Texts for GitHub and GitLab: a comment on a pull request, and an issue per signature. Pure but for stored logs."""
