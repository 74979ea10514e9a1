"""Error messages of container engines, and their explanations for users. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class EngineError:
    """An explained error. `absent`: the site lacks something (its cells are skipped); else something is broken.

    `known` is False for a message that no row matches; `text` then repeats it.
    """

    text: str
    absent: bool = False
    known: bool = True


class _Row(NamedTuple):
    """One known message, whether it means that the site lacks something, and its explanation: {where} is the engine."""

    pattern: str
    absent: bool
    meaning: str


# Messages of the engine: of its daemon, or of the kernel and runc through it. The first row that matches counts.
_TABLE = (
    _Row(
        r"no space left on device|disk quota exceeded",
        False,
        "the disk of {where} is full: `docker system df` shows what takes the space, `docker system prune` frees some",
    ),
    _Row(
        r"could not select device driver|nvidia-container-cli: .*(libnvidia-ml|driver)|invalid runtime name: nvidia",
        True,
        "{where} cannot give GPUs to containers: it needs NVIDIA's driver and the NVIDIA Container Toolkit "
        "(`nvidia-ctk runtime configure`, then restart dockerd)",
    ),
    _Row(
        r"nvidia-container-cli: (?:device error: )?(?P<what>.*unknown device[^\n]*)",
        True,
        "{where} has no such GPU: {what}",
    ),
    _Row(
        r'gathering device information while adding custom device "(?P<what>[^"]+)": no such file',
        True,
        "the host of {where} has no {what}: no such device, or its kernel driver is not loaded",
    ),
    _Row(
        r'gathering device information while adding custom device "(?P<what>[^"]+)": not a device node',
        False,
        "{what} on the host of {where} is not a device",
    ),
    _Row(
        r"bind source path does not exist: (?P<what>\S+)",
        False,
        "the host of {where} has no {what}, which a volume of the hardware wants to show in the container",
    ),
    _Row(
        r"[Uu]nable to find group (?P<what>[^:\s]+)",
        False,
        "neither the host of {where} nor the image has a group {what}: leave it out, or give its number",
    ),
    _Row(r"[Uu]nable to find user (?P<what>[^:\s]+)", False, "the image has no user {what}"),
    _Row(
        r"error setting rlimits?[^\n]*operation not permitted",
        False,
        "{where} may not raise limits (is it rootless, or in a container itself?): leave out `ulimits`, "
        "or raise them for the daemon",
    ),
    _Row(
        r"(?:exec: |exec )\"?(?P<what>[\w./-]+)\"?(?: failed)?: (?:executable file not found|No such file or directory|"
        r"stat .*no such file)",
        False,
        "the image has no {what}: a node needs Python 3.6 or newer as `python3` in its PATH",
    ),
    _Row(
        r"exec format error|Exec format error|does not match the (?:detected host|specified) platform",
        False,
        "the image is for another processor architecture than that of {where}: build or pull it for that one",
    ),
    _Row(
        r"non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted",
        False,
        "{where} has no address range left for another network: remove networks that are not used any more "
        "(`docker network prune`), or use `network: host`",
    ),
    _Row(
        r"the --\w+ option requires BuildKit|[Uu]nknown flag: mount|dockerfile parse error.*(?:<<|heredoc)",
        False,
        "this Dockerfile needs BuildKit, which the engine's own builder is not: build the image by hand, "
        "with the command that --hetgpu-plan prints",
    ),
    _Row(
        r"pull access denied|repository does not exist|unauthorized|authentication required|denied: ",
        False,
        "the registry has no such image, or does not show it to you: check the name, or `docker login` there",
    ),
    _Row(
        r"manifest (?:for \S+ )?(?:not found|unknown)|manifest unknown",
        False,
        "the registry has the image, but not this tag: check the part after the colon",
    ),
    _Row(
        r"no matching manifest for (?P<what>\S+)",
        False,
        "the registry has the image, but not for {what}, the architecture of {where}",
    ),
    _Row(
        r"toomanyrequests|rate limit",
        False,
        "the registry limits how often you may pull: `docker login` there, or wait",
    ),
    _Row(
        r"certificate signed by unknown authority|x509: ",
        False,
        "{where} does not trust the registry's certificate: add its authority there (/etc/docker/certs.d)",
    ),
    _Row(
        r"no such host|dial tcp|i/o timeout|handshake timeout|request canceled while waiting|network is unreachable",
        False,
        "{where} cannot reach the registry (no network, or a proxy is needed): load the image by hand with "
        "`docker load`, or build it there",
    ),
    _Row(
        r"invalid reference format|repository name must be|invalid repository name|couldn't parse image",
        False,
        "that is no name of an image: NAME[:TAG] in lower-case letters, or a folder with a Dockerfile",
    ),
    _Row(r"unknown capability|invalid CapAdd", False, "a capability of the hardware is unknown to {where}"),
    _Row(
        r"invalid --security-opt|invalid security",
        False,
        "a `security` option of the hardware is unknown to {where}",
    ),
)

# Messages for an engine that cannot be reached.
_NO_ENGINE = (
    _Row(
        r"Permission denied|PermissionError",
        False,
        "{where} is there, but you may not use it: add yourself to the group docker "
        "(`sudo usermod -aG docker $USER`, then log in again), or run as root with sudo",
    ),
    _Row(
        r"FileNotFoundError|No such file or directory|ConnectionRefusedError|Connection refused",
        True,
        "{where} does not answer: install Docker (https://docs.docker.com/engine/install/), start its daemon "
        "(`sudo systemctl start docker`), or give --hetgpu-inventory with the engines of other hosts",
    ),
    _Row(r"[Rr]ead timed out|ReadTimeout", False, "{where} has not answered for a minute: look at its daemon's log"),
    _Row(r"certificate|SSLError|TLS", False, "{where} and you do not agree on TLS: look at DOCKER_CERT_PATH"),
    _Row(r"", False, "{where} stopped answering"),
)

_INIT = "[FATAL tini"  # the engine's init, if it cannot run its command

_EXITS = {
    0: "its agent ended by itself",
    125: "the engine could not start it",
    126: "its first program cannot be run",
    127: "its first program is not in the image",
    134: "its agent aborted (SIGABRT)",
    137: "it was killed (SIGKILL): by the kernel for want of memory, by `docker kill` or `docker rm -f`, "
    "or the engine was stopped",
    139: "its agent crashed (SIGSEGV)",
    143: "it was stopped (SIGTERM), as by `docker stop`",
}


_LAYERS = r"^.*?(?:Client|Server) Error for \S+: |^Error while fetching server API version: "


def refused(said: str, where: str) -> EngineError:
    """Explain the answer `said` of an engine; `where` names the engine, as in "this machine's Docker engine"."""
    found = _look(_TABLE, said, where)
    return found or EngineError(f"{where} refused: {_short(said)}", known=False)


def unreachable(said: str, where: str) -> EngineError:
    """Explain why an engine did not answer."""
    found = _look(_NO_ENGINE, said, where)
    assert found is not None
    return found


def ended(code: int | None, said: str, where: str) -> str:
    """Explain the end of a node's container by its exit code (None: not known) and the end of its stderr."""
    not_run = _look(_TABLE, said, where) if said.startswith(_INIT) else None
    if not_run:
        return not_run.text
    told = f"; it printed: {said}" if said else ""
    if code is None:
        return f"the container is gone{told}"
    return f"the container ended with exit code {code}: {_EXITS.get(code, 'its agent failed')}{told}"


def _look(table: Sequence[_Row], said: str, where: str) -> EngineError | None:
    for row in table:
        match = re.search(row.pattern, said)
        if match:
            what = match.groupdict().get("what") or ""
            text = row.meaning.replace("{where}", where).replace("{what}", what.strip())
            return EngineError(f"{text} ({_short(said)})", row.absent)
    return None


def _short(said: str) -> str:
    """Return one line of at most 300 characters, without the layers of HTTP around the message."""
    text = re.sub(_LAYERS, "", " ".join(said.split()))
    return text if len(text) <= 300 else f"{text[:297]}..."
