"""Works one ledger off: `python -m pytest_hetgpu.cluster.cleanup LEDGER`, which the guardian runs.

Exit status 0: nothing is left, and the ledger is gone. 1: something is, or could not be looked at; try again. 3: its
owner lives, somebody else is at it, or it is no ledger.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_hetgpu.cluster.cleanup.work import Result, work_off

if __name__ == "__main__":
    sys.exit({Result.DONE: 0, Result.LEFT: 1, Result.NOT_OURS: 3}[work_off(Path(sys.argv[1]), memory=True).result])
