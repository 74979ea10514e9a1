"""Scenario to Job: the exact processes to start. Pure: facts about the site are arguments."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_hetgpu.config.inventory.hosts import Host
from pytest_hetgpu.config.matrix.matrix import CellSettings, Matrix
from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.extensions.fabrics.base import GID_INDEX, FabricKind, gid_arguments, gid_needed
from pytest_hetgpu.extensions.launchers.base import Launcher, LaunchRequest, Rendezvous
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.stacks.base import mpi4py_advice
from pytest_hetgpu.extensions.transports.base import Rendering
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.job import ON_DEVICE, Hardware, Job, Node, RankContext, Requirements, Scenario, Stack
from pytest_hetgpu.planning import interface_pinning, references, variables
from pytest_hetgpu.planning.data_paths import paths
from pytest_hetgpu.planning.placement import DiscoveredNode, SiteFacts, address, bind


def plan(matrix: Matrix, scenario: Scenario, site: SiteFacts) -> Job:
    """Plan the job of a scenario. Raises NotHere if the site, the stack or the number of ranks does not allow it."""
    settings = matrix.settings(scenario.values)
    options = settings.options
    all_nodes, hosts = bind(matrix, settings, site)
    all_nodes = tuple(replace(node, interface=interface_pinning.requested(settings, node)) for node in all_nodes)
    nodes = all_nodes[: len(settings.nodes)]
    control = all_nodes[len(nodes)] if settings.launch_from else None
    _require(options.requires, nodes, hosts[: len(nodes)])
    launch_node = _launch_node(nodes, control)
    launcher = find("launchers", options.launcher, Launcher)()  # type: ignore[type-abstract]
    work = _workload(scenario, settings)
    _check_suitable(scenario, settings, nodes, launcher, work)
    meeting, ours = Rendezvous(), {}
    if work.backend or launcher.per_node:
        from pytest_hetgpu.planning.rendezvous import rendezvous, torch_variables

        meeting = rendezvous(scenario, nodes, settings.master)
        ours = torch_variables(nodes, launcher, meeting, _backend_of_ranks(settings, work))
    contexts, mca = _contexts(settings, nodes, site, work, ours)
    if site.dropped:
        from pytest_hetgpu.planning.dropped import without_settings

        contexts, mca = without_settings(site.dropped, contexts, mca)
    nodes = tuple(replace(node, interface=interface_pinning.interface(settings, node)) for node in nodes)
    demand = _requirements(scenario, settings, nodes, hosts[: len(nodes)], work)
    labels = launcher.labels(launch_node.stack) if work.counts_ranks and demand.ranks > 1 and launch_node.stack else ""
    if demand.external:
        demand = replace(demand, external=replace(demand.external, labels=labels))
    demand = _with_thresholds(scenario, demand, nodes)
    if work.one_sided is not False:
        from pytest_hetgpu.planning.one_sided import requirements

        demand = replace(demand, one_sided=requirements(settings, nodes, contexts, mca, work))
    return Job(
        matrix=matrix.name,
        scenario=scenario.id,
        label=scenario.label,
        axes=dict(zip(scenario.axes, scenario.values, strict=True)),
        nodes=nodes,
        command=variables.command(
            launcher,
            replace(
                _launch_request(launch_node, all_nodes, contexts, mca, site), rendezvous=meeting, labelled=bool(labels)
            ),
            on_nodes=_is_multi_host(all_nodes),
        ),
        timeout=options.timeout or site.timeout,
        demand=demand,
        launcher=control,
        scaling=scenario.scaling,
        needs_ssh=launcher.needs_ssh,
    )


def _launch_request(
    launch_node: Node,
    all_nodes: Sequence[Node],
    contexts: Sequence[RankContext],
    mca: Mapping[str, str],
    site: SiteFacts,
) -> LaunchRequest:
    assert launch_node.stack
    if not _is_multi_host(all_nodes):
        return LaunchRequest(launch_node.stack, contexts, mca, site.root, site.cores, programs=site.programs)
    discovered = site.discovered.get(launch_node.index, DiscoveredNode())
    others = any(node is not launch_node for node in all_nodes)
    # Daemons cannot use loopback, even if ranks can.
    devices = {node.hardware.fabric.netdev for node in all_nodes} - {"lo"}
    prefixes = {node.stack.prefix for node in all_nodes if node is not launch_node and node.stack}
    stack = launch_node.stack
    return LaunchRequest(
        replace(stack, launcher=discovered.launcher or stack.launcher, version=discovered.version or stack.version),
        contexts,
        mca,
        root=discovered.root,
        ssh_config=f"{discovered.folder}/ssh_config" if others else "",
        netdev=(devices.pop() or "") if len(devices) == 1 else "",
        prefix=prefixes.pop() if len(prefixes) == 1 and prefixes != {launch_node.stack.prefix} else "",
        shared=len({node.host for node in all_nodes}) < len(all_nodes),
        programs=f"{discovered.folder}/programs",
    )


def _workload(scenario: Scenario, settings: CellSettings) -> Workload:
    """Return the workload with its backend: torch.distributed if the transport, the matrix or the workload requires it.

    Raises NotHere if the two name different backends.
    """
    work, own = settings.workload, settings.transport.backend
    if work.external(1):
        return work.with_backend(own)
    wanted = work.requested_backend
    if own and wanted and wanted != own:
        raise NotHere(
            f"{scenario.value('workload')} asks for backend {wanted}, but transport {scenario.value('transport')} "
            f"is torch.distributed's {own}"
        )
    backend = wanted or own or work.backend
    if backend and not work.torch:
        name = scenario.value("workload")
        raise NotHere(f"{name} calls MPI itself, and has no form in torch.distributed ({backend})")
    return work.with_backend(backend)


def _backend_of_ranks(settings: CellSettings, work: Workload) -> str:
    """Return the backend by which ranks become one world; that of the transport for a user's program without MPI."""
    external = work.external(1)
    return settings.transport.backend if external and not external.proof else work.backend


def _is_multi_host(nodes: Sequence[Node]) -> bool:
    return any(node.hardware.runtime != "local" for node in nodes)


def _check_suitable(
    scenario: Scenario, settings: CellSettings, nodes: Sequence[Node], launcher: Launcher, work: Workload
) -> None:
    """Raise NotHere if workload, transport or launcher cannot run the cell."""
    stacks = dict.fromkeys(node.stack for node in nodes if node.stack)
    mca = {*settings.options.mca, *(name for node in nodes for name in node.hardware.mca)}
    reasons = {
        f"{scenario.value('workload')} ": work.unsuitable(sum(node.ranks for node in nodes))
        or work.unsuitable_transport(settings.family)
        or _lacking(work, nodes),
        "": next(filter(None, map(settings.transport.unsuitable, stacks)), None) or _unreachable(settings, nodes),
        f"{settings.options.launcher} ": launcher.unsuitable(
            next(iter(stacks)), mca, _backend_of_ranks(settings, work)
        ),
    }
    for subject, reason in reasons.items():
        if reason:
            raise NotHere(f"{subject}{reason}")


def _unreachable(settings: CellSettings, nodes: Sequence[Node]) -> str | None:
    """Return why the transport cannot connect the ranks of a node, None if it can on all."""
    reasons = (settings.transport.unreachable(node, node.stack) for node in nodes if node.stack)
    return next(filter(None, reasons), None)


def _lacking(work: Workload, nodes: Sequence[Node]) -> str | None:
    """Return why nodes cannot run the workload: no accelerator, no PyTorch, a foreign mpi4py; None if they can."""
    plain = next((node.hardware.name for node in nodes if node.hardware.accelerator.platform == "cpu"), None)
    if plain and not work.external(1) and _memory(work) in ON_DEVICE:
        return f"needs an accelerator on every node, hardware {plain} is platform cpu"
    if not work.backend:
        foreign = (mpi4py_advice(node.stack) for node in nodes if node.stack)
        advice = next(filter(None, foreign), "") if "mpi4py" in work.argv("", "") else ""
        return f"needs an mpi4py of its MPI: {advice}" if advice else None
    if lacking := next((node.stack for node in nodes if node.stack and not node.stack.torch), None):
        return f"needs PyTorch, which stack {lacking.name} has not (known: openmpi-5-torch, torch)"
    return None


def _memory(work: Workload) -> str:
    """Return the memory of its buffers; NCCL moves nothing but device memory."""
    return "device" if work.backend == "nccl" else getattr(work.settings, "memory", "host")


def _launch_node(nodes: Sequence[Node], control: Node | None) -> Node:
    """Return the node that starts the job.

    On one machine, daemons of different major versions do not understand each other, and such a job fails silently. So
    NotHere is raised. Across hosts the pair is tried, as it may be the subject of the test.
    """
    stacks = list(dict.fromkeys(node.stack for node in nodes if node.stack))
    if not _is_multi_host(nodes):
        if len(stacks) > 1:
            names = ", ".join(sorted(stack.name for stack in stacks))
            raise NotHere(f"one mpirun cannot start nodes of different stacks ({names})")
        own = control.stack if control else stacks[0]
        if control and own and (own.vendor, own.major) != (stacks[0].vendor, stacks[0].major):
            raise NotHere(
                f"{control.hardware.name} cannot start this job: it has {own.vendor} {own.version} (stack {own.name}), "
                f"the nodes have {stacks[0].vendor} {stacks[0].version} (stack {stacks[0].name}), and their major "
                "versions must be one"
            )
    return control or nodes[0]


def _requirements(
    scenario: Scenario, settings: CellSettings, nodes: Sequence[Node], hosts: Sequence[Host], work: Workload
) -> Requirements:
    stack = nodes[0].stack
    assert stack
    # One node without Large BAR suffices for its bugs, so an expectation matches if any node has the capability.
    present = frozenset().union(*(_capabilities(node, host) for node, host in zip(nodes, hosts, strict=True)))
    ranks = sum(node.ranks for node in nodes)
    foreign = work.external(ranks)
    return Requirements(
        ranks=ranks,
        stack=stack,
        transport_family=settings.family,
        transports=settings.transport.components(),
        points=work.required_points(ranks),
        operation=work.measured_operation(ranks),
        measured=work.measured,
        trace=work.traced,
        facts=_known_facts(stack, work),
        capabilities=present,
        expectations=scenario.expectations,
        rdma=all(_fabric(node).rdma for node in nodes),
        backend=work.backend,
        external=foreign,
        tolerance=settings.options.tolerance,
        duties=settings.transport.required_classes(paths(nodes)),
    )


def _with_thresholds(scenario: Scenario, demand: Requirements, nodes: Sequence[Node]) -> Requirements:
    """Add the thresholds of the matrix itself. Thresholds from other cells must be measured first."""
    return replace(demand, limits=references.from_matrix(scenario.references, demand, nodes))


def _fabric(node: Node) -> FabricKind:
    return find("fabrics", node.hardware.fabric.kind, FabricKind)()  # type: ignore[type-abstract]


def _known_facts(stack: Stack, workload: Workload) -> dict[str, str]:
    exact = {stack.vendor.lower().replace(" ", ""): stack.version} if "." in stack.version else {}
    memory = {"memory": _memory(workload)} if hasattr(workload.settings, "memory") else {}
    backend = {"backend": workload.backend} if workload.backend else {}
    return {**exact, "stack": stack.name, **memory, **backend}


def _capabilities(node: Node, host: Host) -> frozenset[str]:
    return node.hardware.capabilities | host.capabilities


def _facts(kind: Hardware) -> dict[str, str]:
    own = kind.accelerator
    return {"platform": own.platform, "arch": own.arch or "", "fabric": kind.fabric.kind, "runtime": kind.runtime}


def _require(wanted: Sequence[str], nodes: Sequence[Node], hosts: Sequence[Host]) -> None:
    for requirement, (node, host) in itertools.product(wanted, zip(nodes, hosts, strict=True)):
        name, equals, value = requirement.partition("=")
        found = _facts(node.hardware).get(name, "")
        if equals and found != value:
            raise NotHere(
                f"requires {requirement}; node {node.index} ({node.hardware.name} on {node.host}) has {name}={found}"
            )
        if not equals and name not in _capabilities(node, host):
            has = ", ".join(sorted(_capabilities(node, host))) or "none"
            raise NotHere(
                f"requires the capability {name}; node {node.index} ({node.hardware.name} on {node.host}) has {has}"
            )


def _contexts(
    settings: CellSettings,
    nodes: Sequence[Node],
    site: SiteFacts,
    work: Workload,
    ours: Mapping[int, Mapping[str, str]],
) -> tuple[list[RankContext], dict[str, str]]:
    """Return a context per run of nodes that share host and environment, and the MCA parameters that all share."""
    stacks = [node.stack for node in nodes if node.stack]
    folders = [_programs(node, nodes, site) for node in nodes]
    argv = [
        (
            *_gid_command(node, stack, folder, site),
            *_fill_placeholders(work.argv(stack.interpreter, folder), node, nodes),
        )
        for node, stack, folder in zip(nodes, stacks, folders, strict=True)
    ]
    rendered = [_rendered(settings, node, stack, site, work) for node, stack in zip(nodes, stacks, strict=True)]
    mca = [
        interface_pinning.merged_mca(settings, n.hardware.mca, r.mca, settings.options.mca)
        for n, r in zip(nodes, rendered, strict=True)
    ]
    env = [
        {
            **ours.get(n.index, {}),
            **_fabric(n).environment(n.hardware.fabric),
            **n.hardware.env,
            **r.env,
            **settings.options.env,
        }
        for n, r in zip(nodes, rendered, strict=True)
    ]
    shared = {name: value for name, value in mca[0].items() if all(other.get(name) == value for other in mca)}
    # A parameter on the command line of one context would apply to all contexts. Its environment is its own.
    own = [{f"OMPI_MCA_{name}": value for name, value in each.items() if name not in shared} for each in mca]
    described = [
        (
            node.name,
            tokens,
            {**mine, **given},
            node.hardware.settings,
            variables.reader(stack.interpreter, folder),
            node.ranks,
        )
        for node, tokens, mine, given, stack, folder in zip(nodes, argv, own, env, stacks, folders, strict=True)
    ]
    grouped = itertools.groupby(described, key=lambda item: item[:5])
    return [RankContext(sum(item[5] for item in group), *what) for what, group in grouped], shared


def _gid_command(node: Node, stack: Stack, folder: str, site: SiteFacts) -> tuple[str, ...]:
    """Return the tokens before a program on a node that was not inspected, if its fabric needs a GID index.

    A run determines the index when it inspects the node. A pasted command finds the index on the node itself.
    """
    fabric = node.hardware.fabric
    if node.hardware.runtime == "local" or node.index in site.discovered or not gid_needed(fabric):
        return ()
    return (stack.interpreter, f"{folder}/{GID_INDEX}", *gid_arguments(fabric))


def _fill_placeholders(tokens: Sequence[str], node: Node, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Replace placeholders in a command by facts of a node, or of the first node."""
    platform = node.hardware.accelerator.platform
    facts = {
        "{platform}": platform,
        "{memory}": "host" if platform == "cpu" else platform,
        "{node0}": address(nodes[0]),
    }
    return tuple(
        functools.reduce(lambda token, fact: token.replace(*fact), facts.items(), token) if "{" in token else token
        for token in tokens
    )


def _rendered(settings: CellSettings, node: Node, stack: Stack, site: SiteFacts, work: Workload) -> Rendering:
    """Return the settings that the transport needs on a node."""
    rendered = settings.transport.render(node, stack)
    if work.one_sided is not False:
        from pytest_hetgpu.planning.one_sided import with_windows

        rendered = with_windows(rendered, settings, stack, work)
    if not site.verbose:
        return rendered
    more = settings.transport.verbose(stack)
    return Rendering({**rendered.mca, **more.mca}, {**rendered.env, **more.env})


def _programs(node: Node, nodes: Sequence[Node], site: SiteFacts) -> str:
    """Return the folder of the programs on a node: all nodes of this machine share that of the run."""
    return (
        f"{site.discovered.get(node.index, DiscoveredNode()).folder}/programs"
        if _is_multi_host(nodes)
        else site.programs
    )
