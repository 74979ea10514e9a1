"""The exceptions that this package raises.

    HetgpuError
    +-- UsageError            the user's input cannot be run; exit code 4
    |   +-- MatrixError       ... in a matrix file; carries every error found
    |   +-- InventoryError    ... in an inventory file
    |   +-- KnowledgeError    ... in a file of known failures
    +-- NotHere               something is missing on this machine; the cell is skipped with the reason
    +-- ProvisionError        a node could not be made ready; an error, not a failure
    |   +-- LostNode          ... or was ready, and is now out of reach
    +-- LaunchError           the launcher itself could not be started
    +-- RecordError           a stored record cannot be read back (store/encode.py)
    +-- HistoryError          a history that cannot be read or written
    |   +-- NoHistory         ... because there is none yet
    +-- ForgeError            GitHub or GitLab refused a request or did not answer (cli/publish/rest.py)
    +-- StorageError          the run's folder cannot be written: disk full, taken away, read-only
    |   +-- JournalError      ... its journal (store/journal.py)

Errors of other libraries are converted to one of these at the call that raises them.
"""

from __future__ import annotations

from collections.abc import Iterable

ENGINE_AWAY = "its container engine went away"
"""Part of the reason for a lost node if its engine stopped or restarted, as then the node itself did not fail."""


class HetgpuError(Exception):
    """Base of all exceptions that this package raises on purpose."""


class UsageError(HetgpuError):
    """Input of the user that cannot be run; raised once, with every error, before anything starts."""


class MatrixError(UsageError):
    """A matrix that cannot be used. `errors` holds one `FILE:LINE: text` string per error."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(self.errors))


class InventoryError(MatrixError):
    """An inventory that cannot be used; errors as in `MatrixError`."""


class KnowledgeError(MatrixError):
    """A file of known failures that cannot be used; errors as in `MatrixError`."""


class NotHere(HetgpuError):
    """A requirement of a cell that is missing on this machine; the message names it and its remedy."""


class ProvisionError(HetgpuError):
    """A node that could not be made ready. `log` holds lines with details, like the end of a build."""

    def __init__(self, node: str, reason: str, log: Iterable[str] = ()) -> None:
        self.node = node
        self.log = tuple(log)
        super().__init__(f"{node}: {reason}")


class LostNode(ProvisionError):
    """A node that was ready cannot be reached any more."""


class HistoryError(HetgpuError):
    """A history that cannot be read or written; it is unchanged."""


class NoHistory(HistoryError):
    """A history that does not exist yet."""


class StorageError(HetgpuError):
    """Data of a run that cannot be written; the message names the file and the reason."""


class LaunchError(HetgpuError):
    """A launcher that could not be started at all (no such program, not executable, no memory)."""
