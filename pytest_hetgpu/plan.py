"""Scenario to Job: what exactly will be started. Pure: facts about the site come in, nothing is looked up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.inventory import Host, Inventory
from pytest_hetgpu.launchers.base import Launcher, Start
from pytest_hetgpu.matrix.document import CellSettings, Document
from pytest_hetgpu.model import Demand, Hardware, Job, Node, RankContext, Scenario, Stack
from pytest_hetgpu.registry import find


@dataclass(frozen=True, slots=True)
class Site:
    """Facts about where jobs start: `programs` is the folder of rank programs, `cores` are the launching host's."""

    stacks: Mapping[str, Stack]
    programs: str
    root: bool = False
    cores: int = 1
    timeout: float = 120.0
    inventory: Inventory = field(default_factory=Inventory)


def plan(document: Document, scenario: Scenario, site: Site) -> Job:
    """The job of a scenario. Raises NotHere where the site, the stack or the number of ranks does not allow it."""
    settings = document.settings(scenario.values)
    options = settings.options
    everybody, hosts = _bound(document, settings, site)
    nodes = everybody[: len(settings.nodes)]
    control = everybody[len(nodes)] if settings.launch_from else None
    _require(options.requires, nodes, hosts[: len(nodes)])
    stack = _stack(settings, nodes, site)
    launcher = find("launchers", options.launcher, Launcher)()  # type: ignore[type-abstract]
    _suit(scenario, settings, nodes, (stack, launcher))
    starter = _starter(settings, control, stack, site) if control else stack
    contexts, mca = _contexts(settings, nodes, stack, site.programs)
    return Job(
        matrix=document.name,
        scenario=scenario.id,
        label=scenario.label,
        axes=dict(zip(scenario.axes, scenario.values, strict=True)),
        nodes=nodes,
        command=launcher.command(Start(starter, contexts, mca, site.root, site.cores)),
        timeout=options.timeout or site.timeout,
        demand=_demand(scenario, settings, stack, nodes, hosts[: len(nodes)]),
        launcher=control,
    )


def _bound(document: Document, settings: CellSettings, site: Site) -> tuple[tuple[Node, ...], tuple[Host, ...]]:
    """Every node with its host; a launcher without ranks is the last."""
    kinds = tuple(document.hardware[name] for name in settings.hardware)
    hosts = site.inventory.bind(kinds)
    ranks = [settings.options.ranks_per_node] * len(settings.nodes) + [0]
    placed = zip(kinds, hosts, ranks, strict=False)
    return tuple(Node(i, kind, host.address, count) for i, (kind, host, count) in enumerate(placed)), hosts


def _suit(scenario: Scenario, settings: CellSettings, nodes: Sequence[Node], tools: tuple[Stack, Launcher]) -> None:
    """Raises NotHere where workload, transport or launcher cannot do what the cell asks for."""
    stack, launcher = tools
    mca = {*settings.options.mca, *(name for node in nodes for name in node.hardware.mca)}
    reasons = {
        f"{scenario.value('workload')} ": settings.workload.unsuitable(sum(node.ranks for node in nodes)),
        "": settings.transport.unsuitable(stack),
        f"{settings.options.launcher} ": launcher.unsuitable(stack, mca),
    }
    for who, reason in reasons.items():
        if reason:
            raise NotHere(f"{who}{reason}")


def _starter(settings: CellSettings, control: Node, stack: Stack, site: Site) -> Stack:
    """The stack of a launcher without ranks: releases of one major version understand each other's daemons."""
    own = site.stacks[settings.options.stack or control.hardware.stack]
    if (own.vendor, own.major) != (stack.vendor, stack.major):
        raise NotHere(
            f"{control.hardware.name} cannot start this job: it has {own.vendor} {own.version} (stack {own.name}), the "
            f"nodes have {stack.vendor} {stack.version} (stack {stack.name}), and their major versions must be one"
        )
    return own


def _demand(
    scenario: Scenario, settings: CellSettings, stack: Stack, nodes: Sequence[Node], hosts: Sequence[Host]
) -> Demand:
    # One node without Large BAR is enough for the bugs it brings: an expectation asks whether any node has it.
    present = frozenset().union(*(_capabilities(node, host) for node, host in zip(nodes, hosts, strict=True)))
    return Demand(
        ranks=sum(node.ranks for node in nodes),
        stack=stack,
        transport_family=settings.family,
        transports=settings.transport.components(),
        points=settings.workload.points(),
        operation=settings.workload.operation,
        measured=settings.workload.measured,
        facts={stack.vendor.lower().replace(" ", ""): stack.version, "stack": stack.name},
        capabilities=present,
        expectations=scenario.expectations,
    )


def _capabilities(node: Node, host: Host) -> frozenset[str]:
    return node.hardware.capabilities | host.capabilities


def _facts(hardware: Hardware) -> dict[str, str]:
    accelerator, fabric = hardware.accelerator, hardware.fabric
    return {
        "platform": accelerator.platform,
        "arch": accelerator.arch or "",
        "fabric": fabric.kind,
        "runtime": hardware.runtime,
    }


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


def _stack(settings: CellSettings, nodes: Sequence[Node], site: Site) -> Stack:
    wanted = {settings.options.stack or node.hardware.stack for node in nodes}
    if len(wanted) > 1:
        raise NotHere(f"one mpirun cannot start nodes of different stacks ({', '.join(sorted(wanted))})")
    return site.stacks[wanted.pop()]


def _contexts(
    settings: CellSettings, nodes: Sequence[Node], stack: Stack, programs: str
) -> tuple[list[RankContext], dict[str, str]]:
    """A context for each run of nodes that share host and environment; MCA parameters that all share go before."""
    file, *arguments = settings.workload.program()
    argv = (stack.interpreter, "-m", "mpi4py", f"{programs}/{file}", *arguments)
    rendered = [settings.transport.render(node, stack) for node in nodes]
    mca = [{**n.hardware.mca, **r.mca, **settings.options.mca} for n, r in zip(nodes, rendered, strict=True)]
    env = [{**n.hardware.env, **r.env, **settings.options.env} for n, r in zip(nodes, rendered, strict=True)]
    shared = {name: value for name, value in mca[0].items() if all(other.get(name) == value for other in mca)}
    # A parameter on the command line of one context would hold for the others too; in its environment it does not.
    own = [{f"OMPI_MCA_{name}": value for name, value in each.items() if name not in shared} for each in mca]
    described = [
        (node.host, {**mine, **variables}, node.ranks) for node, mine, variables in zip(nodes, own, env, strict=True)
    ]
    grouped = itertools.groupby(described, key=lambda item: item[:2])
    return [
        RankContext(sum(item[2] for item in group), host, argv, variables) for (host, variables), group in grouped
    ], shared
