"""Holds a Slurm allocation while a process holds our stdin: `python3 -c TEXT salloc OPTIONS...`.

salloc prints to stdout. It runs `cat` on a pipe of this process. When `cat` ends, salloc gives the allocation
back, even if we are killed. A job that still waits does not notice that, so it is cancelled by its number.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import List

RELEASE_TIMEOUT = 10.0  # seconds for salloc to give back what it has
CANCEL_TIMEOUT = 120.0  # seconds in which a controller that is away may come back
_NUMBER = re.compile(rb"(?:[Jj]ob allocation|job) (\d+)")


def main(argv: List[str]) -> int:
    """Run salloc; return its exit status."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, False)
    salloc = subprocess.Popen(
        [*argv, "cat"], stdin=read_end, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(read_end)
    jobs: List[str] = []
    released = threading.Event()

    def release() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        released.set()
        os.close(write_end)
        if salloc.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # With an allocation, salloc ends with its cat; while it waits, it needs a signal.
                salloc.wait(0.2)
            salloc.terminate()

    threading.Thread(target=release, daemon=True).start()
    output = salloc.stderr
    assert output is not None
    for line in output:
        found = _NUMBER.search(line)
        if found and not jobs:
            jobs.append(found.group(1).decode())
        with contextlib.suppress(OSError):
            os.write(1, line)
    try:
        status = salloc.wait(RELEASE_TIMEOUT)
    except subprocess.TimeoutExpired:
        salloc.kill()
        status = salloc.wait()
    if jobs:
        cancel(jobs[0])
    return status


def cancel(job: str) -> None:
    """Cancel the job, even if the controller is away for a while."""
    latest = time.monotonic() + CANCEL_TIMEOUT
    while time.monotonic() < latest:
        done = subprocess.run(
            ["scancel", "--quiet", job], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        if not done.returncode or b"nvalid job id" in done.stderr:
            return
        time.sleep(1.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
