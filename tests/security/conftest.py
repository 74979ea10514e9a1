"""What these tests share with those of runtimes."""

from __future__ import annotations

from tests.extensions.runtimes.conftest import openssh

__all__ = ["openssh"]
