"""Nodes of several kinds in one job: this machine, hosts by ssh, containers here and behind ssh."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.extensions.runtimes.conftest import loopback, loopback_sshd, openssh
from tests.extensions.runtimes.loopback import Loopback
from tests.real.command_lines import watched
from tests.real.nodes_here import BUILD, RAW, ROOT, docker, properties

__all__ = ["loopback", "loopback_sshd", "openssh"]

pytestmark = [pytest.mark.real, pytest.mark.beside]

Nodes = Callable[..., pytest.RunResult]

HEAD = f"""\
name: nodes
hardware:
  here: {{}}
  there: {{runtime: ssh, mpi: {{prefix: /opt/mpi}}}}
  box: {{runtime: docker, image: {ROOT}/containers/cpu-ompi5, mpi: {{prefix: /opt/mpi}}}}
"""
AXES = """\
axes:
  placement: {{two: [{nodes}]}}
  transport: {{ob1: {{}}}}
  workload: {{allreduce: {{sizes: [8, 64K], timeout: 30}}}}
"""
LABEL = "hetgpu.test=ssh-host"


@pytest.fixture(scope="module")
def image(engine: None) -> str:
    """A host is a container whose sshd is the login."""
    tag = "hetgpu-test/cpu-ompi5-host"
    build = ("build", "-q", "--network", "host", "--build-arg", "BASE=hetgpu-base:bookworm", "-t", tag)
    docker(*build, f"{ROOT}/containers/cpu-ompi5", patience=600)
    return tag


@pytest.fixture(scope="module")
def strangers(image: str, loopback_sshd: Loopback) -> Iterator[list[str]]:
    """Addresses of two hosts that know nothing of us but a key, and ours among them; their host keys are known."""
    script = (
        "ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key && mkdir -m 700 /root/.ssh && "
        'echo "$KEY" >/root/.ssh/authorized_keys && echo PATH=$PATH >/root/.ssh/environment && '
        "cat /etc/ssh/ssh_host_ed25519_key.pub && exec /usr/sbin/sshd -D -e -o PermitUserEnvironment=yes"
    )
    key = (loopback_sshd.folder / "authorized_keys").read_text()
    run = ("run", "-d", "--rm", "--init", "--label", LABEL, "-e", f"KEY={key}", image, "sh", "-c", script)
    names = [docker(*run) for _ in range(2)]
    try:
        gateway = docker("inspect", "-f", "{{.NetworkSettings.Gateway}}", names[0])
        yield [*(_listening(name, loopback_sshd) for name in names), gateway]
    finally:
        docker("rm", "-f", *names)


def _listening(name: str, loopback_sshd: Loopback) -> str:
    """The address of a host, once its sshd says that it listens."""
    address = docker("inspect", "-f", "{{.NetworkSettings.IPAddress}}", name)
    with subprocess.Popen(("docker", "logs", "-f", name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as logs:
        assert logs.stdout
        public, listening = "", False
        while not (public and listening):
            line = logs.stdout.readline().decode()
            assert line, "the host ended"
            public = line if line.startswith("ssh-ed25519 ") else public
            listening = listening or "Server listening" in line
        logs.kill()
    with (loopback_sshd.folder / "strangers").open("a") as known:
        known.write(f"{address} {public}")
    return address


@pytest.fixture
def hosts(
    loopback: Loopback,
    strangers: list[str],
    pytester: pytest.Pytester,
    stack_prefix: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """An inventory of this machine, its engine behind ssh, and two other hosts."""
    home = pytester.path / "stacks"
    home.mkdir()
    (home / "openmpi-5").symlink_to(stack_prefix)
    monkeypatch.setenv("HETGPU_STACKS", str(home))
    with loopback.known_hosts.open("a") as known:
        known.write((loopback.folder / "strangers").read_text())
    *addresses, here = strangers
    reach = loopback.reach
    engine = f"engine: 'ssh://{reach.user}@127.0.0.1:{reach.port}', key: {reach.key}"
    there = "".join(f"    - {{address: {address}, user: root, key: {reach.key}}}\n" for address in addresses)
    path = pytester.path / "all.yaml"
    path.write_text(
        f"hardware:\n  here:\n    - {{address: {here}}}\n  there:\n{there}"
        f"  box:\n    - {{address: {here}, {engine}}}\n{BUILD}"
    )
    return path


@pytest.mark.parametrize(
    "placement", ["box, box", "there, there", "here, there", "here, box", "there, box", "box, there", "there, here"]
)
def test_a_job_over_nodes_of_these_kinds(nodes: Nodes, hosts: Path, pytester: pytest.Pytester, placement: str) -> None:
    result = nodes(AXES.format(nodes=placement), "--hetgpu-inventory", str(hosts), head=HEAD)
    (cell,) = properties(pytester.path / "reports").values()
    log = (pytester.path / "reports/latest/scenarios/two-ob1-allreduce/output.log").read_text()
    assert (result.ret, cell["verdict"]) == (0, "ok"), log
    assert cell["transport_seen"] == "ob1/tcp"
    # Processes and a container in this machine's own network have nothing between them.
    between = placement != "here, box"
    assert (float(cell.get("wire", 0)) > 0) == between, cell["wire_told"]
    assert ("nothing is between them" in cell["wire_told"]) != between


SECRET = """\
name: nodes
hardware:
  here: {{{env}}}
  there: {{runtime: ssh, mpi: {{prefix: /opt/mpi}}, {env}}}
  box: {{runtime: docker, image: {root}/containers/cpu-ompi5, mpi: {{prefix: /opt/mpi}}, {env}}}
"""


@pytest.mark.parametrize("placement", ["box, there", "there, there", "here, there"])
def test_no_command_line_of_any_host_shows_a_variable(
    nodes: Nodes, hosts: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "s3cr3tvalueABC9")
    monkeypatch.setenv("GITHUB_TOKEN", "ci-value-55")
    head = SECRET.format(env="env: {API_TOKEN: '${MY_API_TOKEN}'}", root=ROOT)
    own = "{own: {kind: command, mpi: false, argv: [/bin/sh, -c, 'env; sleep 0.5; echo GOOD'], success: GOOD}}"
    axes = AXES.format(nodes=placement).partition("  workload:")[0] + f"  workload: {own}\n"
    with watched("s3cr3tvalueABC9") as seen:
        result = nodes(axes, "--hetgpu-inventory", str(hosts), head=head)
    assert result.ret == 0
    text = "".join(log.read_text() for log in pytester.path.glob(RAW))
    assert text.count("API_TOKEN=s3cr3tvalueABC9\n") == 2
    assert "ci-value-55" not in text
    assert seen == set()


def test_the_wrong_key_is_named_and_the_other_cells_go_on(
    nodes: Nodes, hosts: Path, pytester: pytest.Pytester, loopback: Loopback
) -> None:
    hosts.write_text(hosts.read_text().replace(f"key: {loopback.reach.key}", f"key: {loopback.folder / 'host_key'}"))
    axes = AXES.format(nodes="there, there").replace("{two: ", "{alone: [here, here], two: ")
    result = nodes(axes, "--hetgpu-inventory", str(hosts), head=HEAD)
    result.assert_outcomes(passed=1, errors=1)
    cell = properties(pytester.path / "reports")["two-ob1-allreduce"]
    assert (cell["outcome"], cell["signature"]) == ("launch_failure", "not-ready@ssh")
    assert "ermission denied" in cell["why"]
    assert "key" in cell["why"]
