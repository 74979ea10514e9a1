"""Hosts that ssh did not reach, and programs and libraries that could not be started or loaded."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.verdict import Kind


def matches(parser: str, text: str) -> list[FailureMatch]:
    found = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        found.feed(parse_line(line, number))
    return list(found.finish())


def parse_all(parser: str, text: str) -> list[Signature]:
    return list(by_priority(matches(parser, text)))


@pytest.mark.parametrize(
    ("text", "read_as", "hosts"),
    [
        ("ssh: connect to host node9 port 22: No route to host\r", "No-route-to-host@ssh", ("node9",)),
        ("ssh: connect to host node9 port 2222: Connection refused", "Connection-refused@ssh", ("node9",)),
        ("ssh: connect to host 10.0.0.7 port 22: Connection timed out", "Connection-timed-out@ssh", ("10.0.0.7",)),
        ("ssh: connect to host fe80::1 port 22: Network is unreachable", "Network-is-unreachable@ssh", ("fe80::1",)),
        ("ssh: Could not resolve hostname node9: Name or service not known", "no-host@ssh", ("node9",)),
        ("ssh: Could not resolve hostname node9: Temporary failure in name resolution", "no-host@ssh", ("node9",)),
        ("No ED25519 host key is known for node2 and you have requested strict checking.\r\nHost key verification failed.\r", "host-key@ssh", ("node2",)),
        ("Host key verification failed.", "host-key@ssh", ()),
        ("@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@\nHost key for node2 has changed and you have requested strict checking.", "host-key-changed@ssh", ("node2",)),
        ("root@node2: Permission denied (publickey).", "permission-denied@ssh", ("node2",)),
        ("me@node2.site.org: Permission denied (publickey,gssapi-keyex,gssapi-with-mic,password).", "permission-denied@ssh", ("node2.site.org",)),
        ("Permission denied (publickey,password).", "permission-denied@ssh", ()),
        ("Received disconnect from 10.0.0.2 port 22:2: Too many authentication failures", "too-many-keys@ssh", ("10.0.0.2",)),
        ("Unable to negotiate with 10.0.0.2 port 22: no matching host key type found. Their offer: ssh-rsa", "no-matching-host-key-type-found@ssh", ("10.0.0.2",)),
        ("kex_exchange_identification: Connection closed by remote host", "closed-by-host@ssh", ()),
        ("kex_exchange_identification: read: Connection reset by peer", "closed-by-host@ssh", ()),
        ("ssh_exchange_identification: Connection closed by remote host", "closed-by-host@ssh", ()),
        ("banner exchange: Connection to 10.0.0.2 port 22: invalid format", "banner@ssh", ("10.0.0.2",)),
        ("Connection timed out during banner exchange", "banner@ssh", ()),
        ("Connection to 10.0.0.2 port 22 timed out", "Connection-timed-out@ssh", ("10.0.0.2",)),
        ("Connection closed by 10.0.0.2 port 22", "closed-by-host@ssh", ("10.0.0.2",)),
        ("Connection reset by node2 port 22", "closed-by-host@ssh", ("node2",)),
        ("command-line: line 0: Bad configuration option: stricthost", "bad-option@ssh", ()),
        ("/root/.ssh/config: line 3: Bad configuration option: foo", "bad-option@ssh", ()),
        ("Bad owner or permissions on /root/.ssh/config", "bad-permissions@ssh", ()),
        ("@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\n@@@\nPermissions 0644 for '/root/.ssh/id_rsa' are too open.", "key-permissions@ssh", ()),
        ('Load key "/root/.ssh/id_rsa": error in libcrypto', "bad-key@ssh", ()),
        ("node4: rcmd: node4: Connection refused", "Connection-refused@rsh", ("node4",)),
        ("pdsh@login: node4: ssh exited with exit code 255", "exit-255@pdsh", ("node4",)),
    ],
)  # fmt: skip
def test_hosts_out_of_reach(text: str, read_as: str, hosts: tuple[str, ...]) -> None:
    (found,) = parse_all("ssh", text)
    assert (f"{found.kind.value} {found.key}", found.hosts) == (f"launch_failure {read_as}", hosts)


@pytest.mark.parametrize(
    "text",
    [
        "Timeout, server node2 not responding.",
        "client_loop: send disconnect: Broken pipe",
        "Connection to node2 closed by remote host.",
    ],
)
def test_hosts_that_were_lost(text: str) -> None:
    assert [f"{s.kind.value} {s.key}" for s in parse_all("ssh", text)] == ["network_failure lost@ssh"]


@pytest.mark.parametrize(
    "text",
    [
        "Warning: Permanently added 'node2' (ED25519) to the list of known hosts.",
        "Pseudo-terminal will not be allocated because stdin is not a terminal.",
        "Connection to node2 closed.",
        "Permission denied, please try again.",
        "open(/x): Permission denied (13)",
        "[a:1] tcp: Connection reset by 10.0.0.1",
        "Could not resolve hostname in the table",
    ],
)
def test_no_trouble_with_hosts(text: str) -> None:
    assert matches("ssh", text) == []


def test_hosts_with_one_trouble_are_one_failure() -> None:
    text = "\n".join(f"ssh: connect to host node{n} port 22: Connection refused" for n in (1, 2))
    (found,) = parse_all("ssh", text)
    assert found.hosts == ("node1", "node2")


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("./a: error while loading shared libraries: libmpi.so.12: cannot open shared object file: No such file", "missing_library missing-library@libmpi.so.12"),
        ("./a: error while loading shared libraries: /x/libx.so: invalid ELF header", "missing_library bad-library@libx.so"),
        ("./a: error while loading shared libraries: libx.so.1: wrong ELF class: ELFCLASS32", "missing_library bad-library@libx.so.1"),
        ("./a: error while loading shared libraries: libx.so: cannot enable executable stack as shared object requires: Permission denied", "missing_library bad-library@libx.so"),
        ("./a: symbol lookup error: ./a: undefined symbol: physics_kernel_v2", "missing_library undefined-symbol@physics_kernel_v2"),
        ("./a: /lib64/libm.so.6: version `GLIBC_2.29' not found (required by ./a)", "missing_library missing-version@GLIBC_2.29"),
        ("bash: line 1: /opt/openmpi-4.1.6/bin/orted: No such file or directory", "launch_failure no-program@orted"),
        ("bash: orted: command not found", "launch_failure no-program@orted"),
        ("/bin/sh: 1: prted: not found", "launch_failure no-program@prted"),
        ("sh: 1: exec: ./a.out: Permission denied", "launch_failure no-program@a.out"),
        ("bash: line 1: ./a.out: cannot execute binary file: Exec format error", "launch_failure no-program@a.out"),
        ("bash: ./run.sh: cannot execute: required file not found", "launch_failure no-program@run.sh"),
        ("zsh:1: command not found: orted", ""),
        ("env: \u2018heat3d\u2019: No such file or directory", "launch_failure no-program@heat3d"),
        ("/usr/bin/env: 'python9': No such file or directory", "launch_failure no-program@python9"),
        ("env: ./a: Permission denied", "launch_failure no-program@a"),
        ("nohup: failed to run command './a': Permission denied", "launch_failure no-program@a"),
        ("numactl: execution of `./a': No such file or directory", "launch_failure no-program@a"),
        ("slurmstepd: error: execve(): ./a: Permission denied", "launch_failure no-program@a"),
    ],
)  # fmt: skip
def test_what_could_not_be_started(text: str, read_as: str) -> None:
    found = [f"{s.kind.value} {s.key}" for s in parse_all("loader", text)]
    assert found == ([read_as] if read_as else [])


@pytest.mark.parametrize(
    "text",
    [
        "dlopen(libcuda.so.1): cannot open shared object file, ignored",
        "vm:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "vm:1:1 [0] NCCL INFO dlerror=libnccl-net.so: cannot open shared object file: No such file or directory",
        "ERROR: ld.so: object '/nosuch.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
        "reading input: No such file or directory",
        "step 3: Permission denied",
        "the key was not found: using the default",
        "cat: /proc/driver/nvidia/version: No such file or directory",
    ],
)
def test_what_keeps_nothing_from_starting(text: str) -> None:
    assert matches("loader", text) == []


@pytest.mark.parametrize(
    ("text", "priority", "fatal"),
    [
        ("/var/spool/slurmd/job123/slurm_script: line 9: module: command not found", Priority.RELAYED, False),
        ("./job.sh: line 12: ./warmup: No such file or directory", Priority.RELAYED, False),
        ("./job.sh: line 12: mpirun: command not found", Priority.CAUSE, True),
        ("/x/slurm_script: line 9: python3: command not found", Priority.CAUSE, True),
        ("bash: line 1: ./a: No such file or directory", Priority.CAUSE, True),
    ],
)
def test_a_script_goes_on_after_what_it_could_not_run(text: str, priority: Priority, fatal: bool) -> None:
    (found,) = matches("loader", text)
    assert (found.priority, found.fatal) == (priority, fatal)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("/usr/bin/ucx_perftest: invalid option -- 'V'", "usage@ucx_perftest"),
        ("./app: option requires an argument -- 'n'", "usage@app"),
    ],
)
def test_an_option_that_a_program_does_not_know(line: str, key: str) -> None:
    (found,) = parse_all("getopt", line)
    assert (found.key, found.kind, found.detail) == (key, Kind.ERROR, line.rpartition(": ")[2])


@pytest.mark.parametrize(
    "line",
    [
        "srun: unrecognized option '--mpi-best'",
        "/usr/bin/mpirun: invalid option -- 'V'",
        "warning: an invalid option -- ignored",
        "Invalid option value",
    ],
)
def test_options_of_launchers_are_told_by_theirs(line: str) -> None:
    assert parse_all("getopt", line) == []
