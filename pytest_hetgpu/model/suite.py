"""The result of a program's own test suite. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST_NAMES = 200
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The number of `tests` that a suite has, skipped ones included, and the names of those that failed on any rank.

    `more` counts failed tests beyond the first `MOST_NAMES`.
    """

    tests: int
    failed: tuple[str, ...] = ()
    skipped: int = 0
    more: int = 0

    @property
    def failure_key(self) -> str:
        """Return a name that is equal for equal failed tests: `failed@test_io.TestFile.testRead and 4 more`."""
        if not self.failed:
            return ""
        more = len(self.failed) + self.more - 1
        return f"failed@{min(self.failed)}{f' and {more} more' if more else ''}"

    def __str__(self) -> str:
        if not self.failed:
            skipped = f", {self.skipped} skipped" if self.skipped else ""
            return f"{self.tests} tests passed{skipped}"
        number = len(self.failed) + self.more
        further = f" and {number - _SHOWN} more" if number > _SHOWN else ""
        return f"{number} of {self.tests} tests failed: {', '.join(self.failed[:_SHOWN])}{further}"
