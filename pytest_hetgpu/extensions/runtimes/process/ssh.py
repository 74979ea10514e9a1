"""Calls of ssh, and the meaning of its errors. The user's configuration, agent and known hosts stay in force."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.job import ConnectionInfo

_OPTIONS = (
    "BatchMode=yes",  # there is no user to answer
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ControlMaster=no",  # an open master connection is used, but none that would outlive this process is made
    "ForwardX11=no",
    "ForwardAgent=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
)


def ssh_command(host: str, reach: ConnectionInfo, remote: Sequence[str], *options: str) -> tuple[str, ...]:
    """Return the call of ssh that runs `remote` (tokens) on `host`; NotHere without an ssh client."""
    ssh = shutil.which("ssh")
    if ssh is None:
        raise NotHere("there is no ssh in PATH: install the OpenSSH client (openssh-client)")
    given = [word for option in _OPTIONS for word in ("-o", option)]
    given += ["-p", str(reach.port)] if reach.port is not None else []
    given += ["-l", reach.user] if reach.user is not None else []
    given += ["-i", reach.key, "-o", "IdentitiesOnly=yes"] if reach.key is not None else []
    return (ssh, "-T", *given, *options, "--", host.strip("[]"), shlex.join(remote))


def _login(host: str, reach: ConnectionInfo) -> str:
    """Return the ssh command that a user types to test the login."""
    port = f" -p {reach.port}" if reach.port is not None else ""
    key = f" -i {shlex.quote(reach.key)}" if reach.key is not None else ""
    return f"ssh{port}{key} {f'{reach.user}@' if reach.user else ''}{host.strip('[]')}"


def explained(host: str, reach: ConnectionInfo, said: str, returncode: int) -> str:
    """Return why ssh ended, from its stderr: the cause, then advice, then the message of ssh."""
    at = f"{host}, port {reach.port}" if reach.port is not None else host
    who = f" as {reach.user}" if reach.user is not None else ""
    login = _login(host, reach)
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, said, re.IGNORECASE):
            text = meaning.format(at=at, who=who, login=login, host=host)
            break
    else:
        text = f"ssh to {at}{who} ended with exit status {returncode}; try `{login} true`"
    lines = (line.removeprefix("ssh: ") for line in said.splitlines() if line.strip())
    words = [line for line in lines if not re.match(r"@+|Warning: Permanently", line)]
    return f"{text} (ssh: {'; '.join(words[-3:])})" if words else text


_MEANINGS = (
    (r"could not resolve hostname", "the name {host} cannot be resolved: write the host's address in the inventory"),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        (
            "the host key of {at} is not the one that is known: if the host was made anew, remove the old one "
            "(`ssh-keygen -R`, as ssh advises) and log in once with `{login}`"
        ),
    ),
    (
        r"host key verification failed|host key is known for",
        "the host key of {at} is not known yet: log in once with `{login}` and accept it",
    ),
    (r"bad permissions|UNPROTECTED PRIVATE KEY", "the key is readable by others, so ssh does not use it: chmod 600"),
    (
        r"permission denied|too many authentication failures",
        (
            "{at} does not let us in{who}: wrong user, or a key that is not in its authorized_keys; "
            "`{login} true` must work without a password"
        ),
    ),
    (r"connection refused", "nothing listens on {at}: no sshd there, or another port"),
    (
        r"timed out|timeout,? server|no route to host|network is unreachable",
        "{at} does not answer: down, or behind a firewall",
    ),
    (r"broken pipe|connection reset|connection closed|closed by remote host", "{at} closed the connection"),
    (
        r"python3['\"]?: (command )?not found|not found: python3|python3: no such file|unknown command:? '?python3",
        "there is no python3 on {at} for the user who logs in: install it (3.6 or later)",
    ),
)
