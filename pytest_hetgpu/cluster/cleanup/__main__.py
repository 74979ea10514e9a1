"""Process one ledger: `python -m pytest_hetgpu.cluster.cleanup LEDGER`. The watchdog runs it.

Exit status 0: nothing is left, and the ledger is removed. 1: something is left, or a location could not be inspected;
try again. 3: the owner lives, another process works on the ledger, or the file is no ledger.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_hetgpu.cluster.cleanup.ledger_cleanup import CleanupStatus, process_ledger

if __name__ == "__main__":
    sys.exit(
        {CleanupStatus.DONE: 0, CleanupStatus.LEFT: 1, CleanupStatus.NOT_OURS: 3}[
            process_ledger(Path(sys.argv[1]), memory=True).status
        ]
    )
