"""The plugin is found by its entry point and pytester is enabled in pyproject.toml, so nothing is loaded from here:

a session elsewhere that runs this checkout's `scenarios/` meets this file too, and must not get plugins from it.
"""

collect_ignore = ["bootstrap.py", "benchmarks"]
