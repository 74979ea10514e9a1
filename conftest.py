"""The plugin is found by its entry point, pytester is enabled in pyproject.toml: nothing is loaded from here.

A session elsewhere that runs this checkout's `scenarios/` meets this file too, and must not get plugins from it.
"""

collect_ignore = ["bootstrap.py", "benchmarks"]
