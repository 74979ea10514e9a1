"""The kubectl commands that a user can type to do the work of runtime `kubernetes` for a placement. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import yaml

from pytest_hetgpu.extensions.runtimes._kubernetes import runai
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import Manifest, pods_of, resource
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.placement import groups, manifests, places, selector
from pytest_hetgpu.extensions.runtimes.pods.request import INJECTED, Pods, object_name
from pytest_hetgpu.model.job import Job, Node

_END = "END"
# The ssh configuration explains names after these options.
_NAMED = ("-H", "-host", "-hosts")


def creation(nodes: Sequence[Node], placement: str) -> Iterator[str]:
    """Yield the shell lines that request the pods of a placement."""
    name, pods = object_name(placement), pods_of(nodes[0])
    if line := runai.submission([pods_of(node) for node in nodes], name, ("sleep", str(pods.ttl))):
        yield "# or, by RunAI's own client, whose pods the lines below must then name:"
        yield f"# {line}"
    text = document(manifests(nodes, name, {"hetgpu.placement": placement}))
    yield f"{shlex.join((*kubectl(pods), 'create', '-f', '-'))} <<'{_END}'\n{text}{_END}"


def arrival(nodes: Sequence[Node], placement: str) -> Iterator[str]:
    """Yield the shell lines that wait for running pods, and store their names and addresses in variables."""
    name, pods = object_name(placement), pods_of(nodes[0])
    of_all = ("-l", selector(name))
    count = shlex.join((*kubectl(pods), "get", "pods", "-o", "name", *of_all))
    expected = sum(len(group.nodes) for group in groups(nodes))
    yield f'until [ "$({count} | wc -l)" -ge {expected} ]; do sleep 1; done'
    patience = f"--timeout={pods.ready:g}s"
    yield shlex.join((*kubectl(pods), "wait", "--for=condition=Ready", "pods", *of_all, patience))
    for node, place in zip(nodes, places(nodes), strict=True):
        chosen = ("-l", selector(name, place.group), "-o", f"jsonpath={{.items[{place.position}].metadata.name}}")
        yield f"pod{node.index}=$({shlex.join((*kubectl(pods), 'get', 'pods', *chosen))})"
        address = shlex.join((*kubectl(pods), "get", "-o", "jsonpath={.status.podIP}"))
        yield f'{_address(node)}=$({address} pod/"$pod{node.index}")'


def alternatives(job: Job, nodes: Sequence[Node], programs: str) -> Iterator[str]:
    """Yield the job in the form that RunAI starts by itself, after a line that names it; else yield nothing."""
    pods = [pods_of(node) for node in nodes]
    line, folder = runai.batch(pods, object_name(job.label), job.command.argv, programs)
    if line:
        yield from (f"or as a job of RunAI's own, with the rank programs in {folder}:", f"$ {line}")


def removal(nodes: Sequence[Node], placement: str) -> str:
    """Return the line that removes the objects, and ends after their removal."""
    made = manifests(nodes, object_name(placement), {})
    names = (f"{resource(one)}/{one['metadata']['name']}" for one in made)
    return shlex.join((*kubectl(pods_of(nodes[0])), "delete", "--ignore-not-found", "--cascade=foreground", *names))


def on(node: Node, *argv: str, stdin: bool = False, all_nodes: Sequence[Node] = ()) -> str:
    """Return the line that runs tokens in the pod of a node; hosts of `all_nodes`, all pods, become addresses."""
    before = shlex.join((*kubectl(pods_of(node)), "exec", *("-i",) * stdin))
    hosts = {one.host: f'"${_address(one)}"' for one in all_nodes}
    words = (_word(word, {} if last in _NAMED else hosts) for last, word in zip(("", *argv), argv, strict=False))
    return f'{before} "$pod{node.index}" -c {pods_of(node).container} -- {" ".join(words)}'


def address(node: Node) -> str:
    """Return the variable that holds the address of a node's pod."""
    return f"${_address(node)}"


def cleared(node: Node) -> tuple[str, ...]:
    """Return the words before a command that remove the variables of an operator."""
    names = INJECTED.get(pods_of(node).kind, ())
    return ("env", *(word for name in names for word in ("-u", name))) if names else ()


def _word(word: str, hosts: Mapping[str, str]) -> str:
    """Quote a token; `node0:2345` or `NAME=node0` get the variable that holds the address."""
    named = "|".join(map(re.escape, hosts))
    found = re.fullmatch(rf"([A-Za-z_]+=)?({named})(:[0-9]+)?", word) if named else None
    if found:
        return f"{found[1] or ''}{hosts[found[2]]}{found[3] or ''}"
    return shlex.quote(word)


def kubectl(pods: Pods) -> tuple[str, ...]:
    """Return the client for the cluster and namespace of a node."""
    context = ("--context", pods.context) if pods.context else ()
    return ("kubectl", *context, *(("--namespace", pods.where) if pods.where else ()))


def _address(node: Node) -> str:
    return f"ip{node.index}"


def document(made: Sequence[Manifest]) -> str:
    """Return manifests as YAML without any line that ends a here-document."""
    return str(yaml.safe_dump_all(made, sort_keys=False, width=1_000_000, default_flow_style=False))
