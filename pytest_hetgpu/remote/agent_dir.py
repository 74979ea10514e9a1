"""The private folder of the node agent, and its first message about the node."""

import contextlib
import os
import platform
import pwd
import re
import stat
import tempfile
from pathlib import Path
from typing import Any, Dict

from agent_sshd import AgentError
from agent_tree import become_subreaper

Fields = Dict[str, Any]


def private_folder() -> str:
    """Create a folder of mode 0700 that we own. Its path needs no quotes in files and options of ssh."""
    candidates = [os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108 - mkdtemp makes it ours
    for where in filter(None, candidates):
        if not re.match(r"[A-Za-z0-9_./+-]+\Z", os.path.realpath(where)):
            continue
        with contextlib.suppress(OSError):
            folder = os.path.realpath(tempfile.mkdtemp(prefix="hetgpu-", dir=where))
            found = os.lstat(folder)
            if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700:
                write_owner(folder)
                return folder
    raise AgentError(f"no folder to write to: tried {', '.join(filter(None, candidates))}")


def write_owner(folder: str) -> None:
    """Write the label of the owner into the folder, so that leftovers of a killed agent can be found."""
    owner = os.environ.get("HETGPU_OWNER")
    if owner:
        Path(folder, ".owner").write_text(owner)


def describe_node(folder: str) -> Fields:
    """Return the facts of the first message: process, host, user, folder."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return {
        "pid": os.getpid(),
        "host": platform.node(),
        "user": user,
        "uid": os.getuid(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "folder": folder,
        "path": os.environ.get("PATH", ""),
        "subreaper": become_subreaper(),
    }
