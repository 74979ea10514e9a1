"""Parts of logs, of which tests compose runs."""

from __future__ import annotations

STEPS = "\n".join(f"rank 0: step {step} residual {1 / step:.4e}" for step in range(1, 9))
RULE = "-" * 74
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in step\n    send(x)\n'
OOM = "slurmstepd: error: Detected 3 oom_kill events in StepId=41.batch. Some of the tasks have been OOM Killed."
LIMIT = "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-03-04T10:00:00 DUE TO TIME LIMIT ***"
ABORT = f"{RULE}\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 3.\n{RULE}"
