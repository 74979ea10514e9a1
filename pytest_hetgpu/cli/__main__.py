"""`python -m pytest_hetgpu.cli`: the `hetgpu` command."""

from __future__ import annotations

import sys

from pytest_hetgpu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
