"""A job as shell lines: the nodes are created and connected step by step, then one command starts it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.extensions.fabrics.base import GID_INDEX, gid_arguments, gid_needed
from pytest_hetgpu.extensions.runtimes.base import SshServer
from pytest_hetgpu.extensions.runtimes.lookup import by_runtime, runtime_of
from pytest_hetgpu.model.job import Command, Job, Node
from pytest_hetgpu.planning.placement import DiscoveredNode
from pytest_hetgpu.planning.shell.ssh_config import CONFIG, KEY, KNOWN_HOSTS, session_environment, ssh_config

FOLDER = DiscoveredNode().folder
FIRST_PORT = 2222
_HOST_KEY, _AUTHORIZED = "host_key", "authorized_keys"


def preparation(job: Job, programs: str) -> Iterator[str]:
    """Yield the lines that prepare the nodes of a placement, and connect them if the job needs that.

    `programs` is the folder of rank programs.
    """
    yield from allocate(job)
    yield from prepare(job, programs)


def allocate(job: Job) -> Iterator[str]:
    """Yield the lines that allocate nodes from a scheduler. Until they succeed, nothing needs cleanup."""
    for runtime, nodes in by_runtime(job.all_nodes):
        yield from runtime.allocate(job, nodes, placement_name(job))


def creation(job: Job) -> Iterator[str]:
    """Yield the lines that create nodes: their images, their network, themselves."""
    for runtime, nodes in by_runtime(job.all_nodes):
        yield from runtime.create(job, nodes, placement_name(job))


def prepare(job: Job, programs: str) -> Iterator[str]:
    """Yield the lines of `preparation` after those of `allocate`."""
    placement = placement_name(job)
    for runtime, nodes in by_runtime(job.all_nodes):
        yield from runtime.prepare(job, nodes, placement)
    for node in job.all_nodes:
        yield on(node, placement, "mkdir", "-m", "700", FOLDER)
        yield copy(node, placement, programs)
    yield from _gid_indexes(job, placement)
    yield from connect(job)


def _gid_indexes(job: Job, placement: str) -> Iterator[str]:
    """Yield comments that explain how ranks over RoCE get their GID index; the commands below determine it."""
    needing = [node for node in job.nodes if node.hardware.runtime != "local" and gid_needed(node.hardware.fabric)]
    if not needing:
        return
    yield f"# {GID_INDEX} sets NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX for ranks; alone it prints the index of a node:"
    for node in needing:
        words = ("python3", f"{FOLDER}/programs/{GID_INDEX}", *gid_arguments(node.hardware.fabric))
        yield f"# {on(node, placement, *words)}"


def started(job: Job, command: Command) -> str:
    """Return the line that starts the job on its launch node."""
    return runtime_of(job.launch_node.hardware.runtime).start_line(job, command, placement_name(job))


def alternatives(job: Job) -> Iterator[str]:
    """Yield other ways to start the job, without prepared nodes, each after a comment that describes it."""
    for runtime, nodes in by_runtime(job.all_nodes):
        yield from runtime.alternatives(job, nodes, f"{FOLDER}/programs")


def cleaning(job: Job) -> Iterator[str]:
    """Yield the lines that remove everything of the job."""
    placement, groups = placement_name(job), list(by_runtime(job.all_nodes))
    for runtime, nodes in groups:
        yield from runtime.remove(job, nodes, placement, FOLDER)
    for runtime, nodes in groups:
        yield from runtime.release(job, nodes, placement)


def placement_name(job: Job) -> str:
    """Return the name of its containers and networks."""
    return f"{job.matrix}-{job.axes.get('placement', '')}"


def on(node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
    """Return a line that runs tokens on a node."""
    return runtime_of(node.hardware.runtime).exec_line(node, placement, *argv, stdin=stdin)


def copy(node: Node, placement: str, programs: str) -> str:
    """Return a line that copies the rank programs to a node."""
    return runtime_of(node.hardware.runtime).copy_line(node, placement, programs, f"{FOLDER}/programs")


def connect(job: Job) -> Iterator[str]:
    """Yield the lines that let the launch node reach the others by ssh; nothing for a job that does without."""
    if not job.needs_ssh or len(job.all_nodes) == 1:
        return
    launch, placement = job.launch_node, placement_name(job)
    yield on(launch, placement, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{FOLDER}/{KEY}")
    others = [node for node in job.all_nodes if node is not launch]
    public = on(launch, placement, "cat", f"{FOLDER}/{KEY}.pub")
    for node, server in _ssh_servers(others):
        yield on(node, placement, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{FOLDER}/{_HOST_KEY}")
        yield f"{public} | {on(node, placement, 'tee', f'{FOLDER}/{_AUTHORIZED}', stdin=True)}"
        stays = " &" if runtime_of(node.hardware.runtime).foreground_sshd else ""
        yield f"{on(node, placement, 'sh', '-c', _sshd(node, server))}{stays}"
        host_key = on(node, placement, "cat", f"{FOLDER}/{_HOST_KEY}.pub")
        known = on(launch, placement, "tee", "-a", f"{FOLDER}/{KNOWN_HOSTS}", stdin=True)
        yield f"{host_key} | sed 's/^/{node.name} /' | {known}"
    text = ssh_config(FOLDER, _ssh_servers(others))
    yield f"{on(launch, placement, 'tee', f'{FOLDER}/{CONFIG}', stdin=True)} <<'END'\n{text}END"
    for node in others:
        if expression := runtime_of(node.hardware.runtime).address_expression(node, placement):
            edit = on(launch, placement, "sed", "-i")
            yield f'{edit} "s/HostName {node.host}$/HostName {expression}/" {FOLDER}/{CONFIG}'


def _ssh_servers(others: Sequence[Node]) -> list[tuple[Node, SshServer]]:
    """Return an ssh server for each node. Ports differ, as nodes may share a host."""
    users = [runtime_of(node.hardware.runtime).sshd_user(node) for node in others]
    return [
        (node, SshServer(FIRST_PORT + place, "", user))
        for place, (node, user) in enumerate(zip(others, users, strict=True))
    ]


def _sshd(node: Node, server: SshServer) -> str:
    path = f"{session_environment(node)['PATH']}:$PATH" if session_environment(node) else "$PATH"
    options = {
        "AuthorizedKeysFile": f"{FOLDER}/{_AUTHORIZED}",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    given = " ".join(f"-o {name}={value}" for name, value in options.items())
    runtime = runtime_of(node.hardware.runtime)
    stay = "-D " if runtime.foreground_sshd else ""
    return (
        f'{runtime.before_sshd(node)}exec "$(PATH=$PATH:/usr/sbin command -v sshd)" {stay}-f /dev/null '
        f"-p {server.port} -h {FOLDER}/{_HOST_KEY} "
        f'{given} -o "SetEnv=PATH={path}"'
    )
