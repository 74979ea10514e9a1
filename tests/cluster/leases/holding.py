"""Another process that holds a lease until its stdin closes: `holding.py UID NAME [PORT USER KEY]`; `-`: as ourselves.

For a NAME that is a path: locks that file, without signing it.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from pytest_hetgpu.cluster.leases.hold import Wanted, hold
from pytest_hetgpu.model.job import ConnectionInfo

uid, name, *reach = sys.argv[1:]
if uid != "-":  # after the imports, which may lie where others cannot read
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.environ["USER"] = os.environ["LOGNAME"] = "nobody"
if name.startswith("/"):
    with Path(name).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
else:
    wanted = Wanted(name, name, ConnectionInfo("", reach[1], int(reach[0]), reach[2]) if reach else None)
    with hold([wanted], cell="theirs"):
        print("held", flush=True)
        sys.stdin.read()
