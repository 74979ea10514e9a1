"""A job as a person would type it: the nodes made and joined by hand, then the one command. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from pytest_hetgpu.extensions.fabrics.base import GID_INDEX, gid_arguments, gid_needed
from pytest_hetgpu.extensions.runtimes.base import Door
from pytest_hetgpu.model.job import Command, Job, Node
from pytest_hetgpu.model.kubernetes import object_name
from pytest_hetgpu.model.slurm import components, one_step
from pytest_hetgpu.planning.placement import DiscoveredNode
from pytest_hetgpu.planning.shell import kubectl, runai
from pytest_hetgpu.planning.shell.docker import (
    build_command,
    container_name,
    docker,
    network_command,
    network_name,
    run_command,
)
from pytest_hetgpu.planning.shell.ssh_config import CONFIG, KEY, KNOWN_HOSTS, session_environment, ssh_config

FOLDER = DiscoveredNode().folder
FIRST_PORT = 2222
_HOST_KEY, _AUTHORIZED = "host_key", "authorized_keys"


def preparation(job: Job, programs: str) -> Iterator[str]:
    """Shell lines that make a placement's nodes ready and join them; `programs` is our folder of rank programs."""
    yield from asking(job)
    yield from readiness(job, programs)


def asking(job: Job) -> Iterator[str]:
    """The lines of `preparation` that ask a scheduler for nodes: before they succeed there is nothing to clean."""
    placement = placement_name(job)
    if any(node.hardware.batch for node in job.all_nodes):
        batches = [node.hardware.batch for node in job.all_nodes if node.hardware.batch]
        yield shlex.join(("salloc", *components(f"hetgpu-{placement}", batches)))
    if pods := kubectl.ours(job.all_nodes):
        yield from kubectl.creation(pods, placement)


def readiness(job: Job, programs: str) -> Iterator[str]:
    """The other lines of `preparation`."""
    placement = placement_name(job)
    if pods := kubectl.ours(job.all_nodes):
        yield from kubectl.arrival(pods, placement)
    yield from _keys(job)
    built = dict.fromkeys(build_command(node.image, node.reach) for node in job.all_nodes if node.image)
    yield from (shlex.join(command) for command in built if command)
    if any(node.container and node.container.network == "user" for node in job.all_nodes):
        yield shlex.join(network_command(job.launch_node.reach, placement))
    for node in job.all_nodes:
        if node.image and node.container:
            yield shlex.join(run_command(node, placement))
    for node in job.all_nodes:
        yield on(node, placement, "mkdir", "-m", "700", FOLDER)
        yield copy(node, placement, programs)
    yield from _gid_indexes(job, placement)
    if len(job.all_nodes) > 1:
        yield from _joined(job, placement)


def _gid_indexes(job: Job, placement: str) -> Iterator[str]:
    """How the index is found that ranks over RoCE must name: the commands below do it by themselves."""
    needing = [node for node in job.nodes if node.hardware.runtime != "local" and gid_needed(node.hardware.fabric)]
    if not needing:
        return
    yield f"# {GID_INDEX} sets NCCL_IB_GID_INDEX and UCX_IB_GID_INDEX for ranks; alone it prints the index of a node:"
    for node in needing:
        words = ("python3", f"{FOLDER}/programs/{GID_INDEX}", *gid_arguments(node.hardware.fabric))
        yield f"# {on(node, placement, *words)}"


def _keys(job: Job) -> Iterator[str]:
    """What docker needs beforehand: it starts ssh by itself, and knows of no key."""
    by_ssh = (node.reach for node in job.all_nodes if node.container and node.reach.engine.startswith("ssh://"))
    for reach in dict.fromkeys(reach for reach in by_ssh if reach.key):
        assert reach.key
        yield f"# {shlex.join(docker(reach))} uses your ssh: ssh-add {shlex.quote(reach.key)} first"


def started(job: Job, command: Command) -> str:
    """The command, as it is started on the node that starts the job; Slurm's in the shell that salloc gives."""
    if job.launch_node.hardware.batch:
        tokens = _with(command)
        # mpirun goes by ssh: of a heterogeneous job Slurm shows it one component.
        away = ("env", "-u", "SLURM_JOBID", "-u", "SLURM_JOB_ID")
        stepping = command.argv[0] == "srun"
        return shlex.join(
            tokens if stepping else (*one_step(job.launch_node.hardware.batch), "--input=none", *away, *tokens)
        )
    if job.launch_node.hardware.pods:
        tokens = (*kubectl.cleared(job.launch_node), *_with(command))
        return kubectl.on(job.launch_node, *tokens, everybody=job.all_nodes)
    return on(job.launch_node, placement_name(job), *_with(command))


def otherwise(job: Job) -> Iterator[str]:
    """Shell lines, each behind one that says what it is: other ways to start the job, without nodes that stand."""
    pods = [node.hardware.pods for node in kubectl.ours(job.all_nodes) if node.hardware.pods]
    line, programs = runai.batch(pods, object_name(job.label), job.command.argv, f"{FOLDER}/programs")
    if line:
        yield from (f"or as a job of RunAI's own, with the rank programs in {programs}:", f"$ {line}")


def cleaning(job: Job) -> Iterator[str]:
    """Shell lines that leave nothing of it."""
    placement = placement_name(job)
    if job.launch_node.hardware.batch:
        yield from (on(node, placement, "rm", "-r", FOLDER) for node in job.all_nodes)
        yield "exit  # gives the allocation back"
        return
    if pods := kubectl.ours(job.all_nodes):
        yield kubectl.removal(pods, placement)
    for node in job.all_nodes:
        if node.container:
            yield shlex.join((*docker(node.reach), "rm", "-f", container_name(node, placement)))
        elif not node.hardware.pods:
            yield on(node, placement, "pkill", "-f", f"{FOLDER}/{_HOST_KEY}")
            yield on(node, placement, "rm", "-r", FOLDER)
    if any(node.container and node.container.network == "user" for node in job.all_nodes):
        yield shlex.join((*docker(job.launch_node.reach), "network", "rm", network_name(placement)))


def placement_name(job: Job) -> str:
    """What its containers and networks are called by."""
    return f"{job.matrix}-{job.axes.get('placement', '')}"


def on(node: Node, placement: str, *argv: str, stdin: bool = False) -> str:
    """A shell line that runs tokens on a node."""
    if node.container:
        return shlex.join((*docker(node.reach), "exec", *("-i",) * stdin, container_name(node, placement), *argv))
    if node.hardware.batch:
        # Else srun would read what is pasted behind it.
        unheard = () if stdin else ("--input=none",)
        return shlex.join((*one_step(node.hardware.batch), *unheard, *argv))
    if node.hardware.pods:
        return kubectl.on(node, *argv, stdin=stdin)
    if node.hardware.runtime == "local":
        return shlex.join(argv)
    # ssh hands its words to the login shell there, which takes them apart again.
    return shlex.join((*_ssh(node), shlex.join(argv)))


def copy(node: Node, placement: str, programs: str) -> str:
    """A shell line that copies the rank programs to a node."""
    target = f"{FOLDER}/programs"
    if node.container:
        name = container_name(node, placement)
        return shlex.join((*docker(node.reach), "cp", programs, f"{name}:{target}"))
    if node.hardware.runtime == "local":
        return shlex.join(("cp", "-r", programs, target))
    above, _, name = programs.rpartition("/")
    packed = shlex.join(("tar", "-C", above or ".", "-c", name))
    return f"{packed} | {on(node, placement, 'tar', '-C', FOLDER, '-x', stdin=True)}"


def _with(command: Command) -> tuple[str, ...]:
    variables = tuple(f"{name}={value}" for name, value in sorted(command.env.items()))
    return ("env", *variables, *command.argv) if variables else command.argv


def _ssh(node: Node) -> tuple[str, ...]:
    reach = node.reach
    port = ("-p", str(reach.port)) if reach.port else ()
    key = ("-i", reach.key) if reach.key else ()
    return ("ssh", *port, *key, f"{reach.user}@{node.host}" if reach.user else node.host)


def _joined(job: Job, placement: str) -> Iterator[str]:
    starter = job.launch_node
    yield on(starter, placement, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{FOLDER}/{KEY}")
    others = [node for node in job.all_nodes if node is not starter]
    public = on(starter, placement, "cat", f"{FOLDER}/{KEY}.pub")
    for node, door in _doors(others):
        yield on(node, placement, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{FOLDER}/{_HOST_KEY}")
        yield f"{public} | {on(node, placement, 'tee', f'{FOLDER}/{_AUTHORIZED}', stdin=True)}"
        # What a step of Slurm's leaves in the background ends with it: there the step itself stays.
        stays = " &" if node.hardware.batch else ""
        yield f"{on(node, placement, 'sh', '-c', _sshd(node, door))}{stays}"
        host_key = on(node, placement, "cat", f"{FOLDER}/{_HOST_KEY}.pub")
        known = on(starter, placement, "tee", "-a", f"{FOLDER}/{KNOWN_HOSTS}", stdin=True)
        yield f"{host_key} | sed 's/^/{node.name} /' | {known}"
    text = ssh_config(FOLDER, _doors(others))
    yield f"{on(starter, placement, 'tee', f'{FOLDER}/{CONFIG}', stdin=True)} <<'END'\n{text}END"
    for node in (node for node in others if node.hardware.batch or node.hardware.pods):
        there = kubectl.address(node) if node.hardware.pods else f"$({on(node, placement, 'hostname')})"
        edit = on(starter, placement, "sed", "-i")
        yield f'{edit} "s/HostName {node.host}$/HostName {there}/" {FOLDER}/{CONFIG}'


def _doors(others: Sequence[Node]) -> list[tuple[Node, Door]]:
    """A port each, for nodes may share a host."""
    return [(node, Door(FIRST_PORT + place, "", _user(node))) for place, node in enumerate(others)]


def _user(node: Node) -> str:
    """Who our sshd on a node lets in: in a container its own user, not the one who gets to its host.

    Empty for whoever one is by default there.
    """
    if node.container:
        return node.container.user.partition(":")[0] or "root"
    return node.reach.user or ""


def _sshd(node: Node, door: Door) -> str:
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
    stay = "-D " if node.hardware.batch else ""
    root = "mkdir -p /run/sshd; " if door.user == "root" or node.hardware.pods else ""
    return (
        f'{root}exec "$(PATH=$PATH:/usr/sbin command -v sshd)" {stay}-f /dev/null -p {door.port} '
        f"-h {FOLDER}/{_HOST_KEY} "
        f'{given} -o "SetEnv=PATH={path}"'
    )
