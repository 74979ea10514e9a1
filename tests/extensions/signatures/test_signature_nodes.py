"""Lines about nodes that were not ready, or got lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_hetgpu
from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.cluster import ssh
from pytest_hetgpu.errors import ProvisionError
from pytest_hetgpu.extensions.runtimes._docker import images, tunnel
from pytest_hetgpu.extensions.runtimes._docker.address import Address, address
from pytest_hetgpu.extensions.runtimes._docker.engine import Engine
from pytest_hetgpu.extensions.runtimes._docker.errors import ended, refused, unreachable
from pytest_hetgpu.extensions.runtimes._slurm import messages
from pytest_hetgpu.extensions.runtimes.base import key_trouble
from pytest_hetgpu.extensions.runtimes.process.ssh import explained
from pytest_hetgpu.extensions.signatures.nodes import Nodes
from pytest_hetgpu.model.job import ConnectionInfo, Hardware, Image, Node
from pytest_hetgpu.model.verdict import Kind

WHERE = "this machine's Docker engine"
ENGINE = Engine(Address("unix:///var/run/docker.sock", WHERE))
IMAGE = Image("hetgpu/roce:1", "/containers/roce")


@pytest.mark.parametrize(
    ("line", "kind", "key"),
    [
        ("hetgpu: node node1 (a on h) was lost: the connection ended", Kind.NETWORK_FAILURE, "lost@node"),
        (
            "hetgpu: node n (a on h) was lost: its container engine went away: this machine's Docker engine",
            Kind.NETWORK_FAILURE,
            "engine-lost@docker",
        ),
        (
            "hetgpu: not ready: n: this machine's Docker engine lacks the base image hetgpu-base:trixie, which no "
            "registry has, and it is not made here (that needs root): make it",
            Kind.LAUNCH_FAILURE,
            "not-ready@base",
        ),
        ("hetgpu: interface ib0 of node1 is down", Kind.NETWORK_FAILURE, "lost@interface"),
        ("hetgpu: node node1 (a on h) was lost: pod p-0 was deleted", Kind.TIMEOUT, "deleted@kubernetes"),
        ("hetgpu: node node1 (a on h) was lost: pod p-0 was evicted (memory)", Kind.TIMEOUT, "evicted@kubernetes"),
        ("hetgpu: node node1 (a on h) was lost: pod p-0 was preempted", Kind.TIMEOUT, "preempted@kubernetes"),
        ("hetgpu: node n (a on h) was lost: pod p-0 reached its deadline: give", Kind.TIMEOUT, "time-limit@kubernetes"),
        ("hetgpu: node n (a on h) was lost: pod p-0 lost its node k", Kind.NETWORK_FAILURE, "node-lost@kubernetes"),
        ("hetgpu: node n (a on h) was lost: pod p was killed for its memory", Kind.OUT_OF_MEMORY, "oom-kill@kernel"),
        (
            "hetgpu: node n (a on h) was lost: the API server of Kubernetes at c does not answer: `kubectl",
            Kind.NETWORK_FAILURE,
            "no-server@kubernetes",
        ),
        ("hetgpu: not ready: a: kubectl has no context c", Kind.LAUNCH_FAILURE, "not-ready@kubernetes"),
    ],
)
def test_lines_of_ours(line: str, kind: Kind, key: str) -> None:
    parser = Nodes()
    parser.feed(parse_line(line, 3))
    (match,) = parser.finish()
    assert (match.signature.kind, match.signature.key, match.signature.primary_line) == (kind, key, line)


def test_the_same_words_in_mid_line_are_somebody_elses() -> None:
    parser = Nodes()
    parser.feed(parse_line("it said: hetgpu: not ready: node1", 1))
    assert not parser.finish()


def part(error: str | ProvisionError) -> str:
    """Return the cause in the line of a node that was not ready."""
    text = f"node1: {error}" if isinstance(error, str) else str(error)
    parser = Nodes()
    parser.feed(parse_line(f"hetgpu: not ready: {text}", 1))
    (match,) = parser.finish()
    assert match.signature.detail == text
    return match.signature.key.partition("@")[2]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("write /var/lib/docker/tmp/GetImageBlob: no space left on device", "disk"),
        ('could not select device driver "" with capabilities: [[gpu]]', "device"),
        ("nvidia-container-cli: device error: 9: unknown device: unknown", "device"),
        (
            'error gathering device information while adding custom device "/dev/kfd": no such file',
            "device",
        ),
        ('error gathering device information while adding custom device "/tmp/x": not a device node', "device"),
        ("invalid mount config: bind source path does not exist: /data", "node"),
        ("Unable to find group render: no matching entries in group file", "node"),
        ('exec: "python3": executable file not found in $PATH: unknown', "python3"),
        ("[FATAL tini (7)] exec python3 failed: No such file or directory", "python3"),
        ("standard_init_linux.go:228: exec user process caused: exec format error", "node"),
        ("could not find an available, non-overlapping IPv4 address pool", "node"),
        ("pull access denied for nosuch, repository does not exist or may require 'docker login'", "registry"),
        ("manifest for debian:nosuch not found: manifest unknown", "registry"),
        ("toomanyrequests: You have reached your pull rate limit", "registry"),
        ("Get https://r/v2/: x509: certificate signed by unknown authority", "registry"),
        ("Get https://registry-1.docker.io/v2/: dial tcp: lookup registry-1.docker.io: no such host", "registry"),
        ("something that sshd, ssh, an image and a disk never said", "engine"),
    ],
)
def test_what_an_engine_refuses(said: str, expected: str) -> None:
    trouble = refused(said, WHERE)
    assert part(trouble.text) == expected
    pulled = part(images._not_pulled(ENGINE, "debian:12", "node1", trouble.text))
    assert pulled == ("disk" if expected == "disk" else "registry")


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("The command '/bin/sh -c make' returned a non-zero code: 2", "build"),
        ("pull access denied for nosuch, repository does not exist", "registry"),
        ("write /var/lib/docker/tmp/x: no space left on device", "disk"),
        ("dockerfile parse error line 2: unknown instruction: RUM", "build"),
    ],
)
def test_a_build_that_fails(end: str, expected: str) -> None:
    log = f"Step 3/9 : RUN ssh-keygen -A && make\n: ssh-keygen: python3, sshd and ssh are not found\n{end}\n"
    assert part(images._failed(ENGINE, IMAGE, "node1", log)) == expected


@pytest.mark.parametrize(
    "said",
    [
        "[Errno 13] Permission denied",
        "[Errno 111] Connection refused",
        "FileNotFoundError(2, 'No such file or directory')",
        "Read timed out. (read timeout=60.0)",
        "SSLError: certificate verify failed",
        "Connection aborted",
    ],
)
@pytest.mark.parametrize("where", [WHERE, "the Docker engine of 192.0.2.7", "the Docker engine at unix:///run/d.sock"])
def test_an_engine_that_is_out_of_reach(said: str, where: str) -> None:
    assert part(unreachable(said, where).text) == "engine"
    assert part(refused("whatever", where).text) == "engine"


@pytest.mark.parametrize("engine", ["tcp://h:2375", "ssh://h:port"])
def test_an_engine_that_is_not_used(engine: str) -> None:
    with pytest.raises(ProvisionError) as caught:
        address("node1", ConnectionInfo(engine), {})
    assert part(caught.value) == "engine"


@pytest.mark.parametrize("word", [b"absent", b"other", b"denied ubuntu"])
def test_an_engine_behind_a_tunnel(word: bytes) -> None:
    answer = b"hetgpu:" + word + b"\n"
    pipe: Any = SimpleNamespace(recv=lambda _: answer, kill=lambda: None, given_up=False)
    with pytest.raises(ProvisionError) as caught:
        tunnel._check(pipe, "192.0.2.7", ConnectionInfo(), "/var/run/docker.sock")
    assert part(caught.value) == "engine"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("ssh: Could not resolve hostname h: Name or service not known", "ssh"),
        ("@@@@\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", "ssh"),
        ("Load key: bad permissions\nu@h: Permission denied (publickey).", "ssh"),
        ("u@h: Permission denied (publickey).", "ssh"),
        ("ssh: connect to host h port 22: Connection refused", "ssh"),
        ("ssh: connect to host h port 22: Connection timed out", "ssh"),
        ("muxclient: something new", "ssh"),
        ("", "ssh"),
        ("bash: line 1: python3: command not found", "python3"),
        ("python3 is 3.5 there, 3.6 or later is needed", "python3"),
    ],
)
@pytest.mark.parametrize("reach", [ConnectionInfo(), ConnectionInfo("", "ubuntu", 2222, "/k")])
def test_a_host_that_ssh_does_not_reach(said: str, expected: str, reach: ConnectionInfo) -> None:
    assert part(explained("192.0.2.7", reach, said, 255)) == expected


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    assert part(key_trouble(str(tmp_path / "aws.pem"))) == "ssh"


def test_a_container_that_ends_at_once() -> None:
    assert part(ended(1, "python3 is 3.5 there, 3.6 or later is needed", WHERE)) == "python3"
    assert part(ended(127, "[FATAL tini (7)] exec python3 failed: No such file or directory", WHERE)) == "python3"
    assert part(ended(137, "", WHERE)) == "node"


def test_a_full_disk_of_a_node() -> None:
    assert part("OSError: [Errno 28] No space left on device") == "disk"


@pytest.mark.parametrize("said", [*ssh._HINTS, "Connection refused", "exit code 255"])
def test_nodes_that_do_not_reach_each_other(said: str) -> None:
    answer = SimpleNamespace(returncode=255, stderr=said.encode())
    member: Any = SimpleNamespace(folder="/f", exec=lambda *_, **__: answer, sshd_log=lambda: ("sshd: no",))
    one, other = (ssh.NodeHandle(Node(i, Hardware("a"), "192.0.2.7", 1, f"node{i}"), member) for i in (0, 1))
    with pytest.raises(ProvisionError) as caught:
        ssh._try(one, other)
    assert part(caught.value) == "ssh"


def troubles(program: str) -> Iterator[str]:
    """Return the texts of every AgentError that a program on nodes raises, with WORD for its variables."""
    path = Path(pytest_hetgpu.__file__).parent / "remote" / f"{program}.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and ast.unparse(node.exc.func) == "AgentError"
        ):
            yield written(node.exc.args[0])


def written(text: ast.expr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(map(written, text.values))
    return written(text.left) + written(text.right) if isinstance(text, ast.BinOp) else "WORD"


def test_every_trouble_with_a_nodes_own_sshd() -> None:
    texts = [text.replace("no WORD in", "no sshd in") for text in troubles("agent_sshd")]
    assert len(texts) >= 10
    assert {text: part(text) for text in texts if part(text) != "sshd"} == {}
    assert part(texts[0].replace("no sshd in", "no ssh-keygen in")) == "sshd"


@pytest.mark.parametrize(
    ("state", "kind", "key"),
    [
        ("PREEMPTED", Kind.TIMEOUT, "preempted@slurm"),
        ("CANCELLED", Kind.TIMEOUT, "cancelled@slurm"),
        ("TIMEOUT", Kind.TIMEOUT, "time-limit@slurm"),
        ("NODE_FAIL", Kind.NETWORK_FAILURE, "node-failure@slurm"),
        ("OUT_OF_MEMORY", Kind.NETWORK_FAILURE, "lost@node"),
    ],
)
def test_what_slurm_took_away_has_slurms_word(state: str, kind: Kind, key: str) -> None:
    parser = Nodes()
    parser.feed(parse_line(f"hetgpu: node node1 (a on c2) was lost: {messages.ended('7', state)}", 1))
    (match,) = parser.finish()
    assert (match.signature.kind, match.signature.key) == (kind, key)


@pytest.mark.parametrize(
    "said",
    [
        messages.refused("salloc: error: Job submit/allocate failed: Invalid partition name specified"),
        f"Slurm job 7 can never start (PartitionConfig): {messages.never('PartitionConfig')}",
        "Slurm job 7 can never start (PartitionDown): partition closed is down: see `sinfo`",
        "Slurm job 7 did not start in 3 s (Priority): give `queue` of `slurm` more seconds",
        "cpu_bind names CPU 63, and c1 has 0-1: give the CPUs of this node",
    ],
)
def test_what_slurm_did_not_give(said: str) -> None:
    parser = Nodes()
    parser.feed(parse_line(f"hetgpu: not ready: h200: {said}", 1))
    (match,) = parser.finish()
    assert match.signature.key == "not-ready@slurm"
