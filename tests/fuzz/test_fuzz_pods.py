"""Whatever a matrix says of its pods: objects that the API takes, with no right that it does not ask for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_hetgpu.config.matrix.hardware import shape_of
from pytest_hetgpu.extensions.runtimes._kubernetes import kubectl
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.base import KEPT
from pytest_hetgpu.extensions.runtimes._kubernetes.manifests.placement import manifests
from pytest_hetgpu.extensions.runtimes.pods.request import KINDS, object_name
from pytest_hetgpu.model.job import Node
from tests.extensions.runtimes.manifest_schemas import wrong
from tests.extensions.runtimes.test_manifests import templates
from tests.fuzz.fuzzing import fuzz, harmless

SHELL = (
    *("$(touch taken)", "`touch taken`", "; touch taken;", "'; touch taken; '", '"; touch taken; "', "\ntouch taken\n"),
    *("a\nEND\ntouch taken\n", "\\'; touch taken #", "a\rtouch taken"),
)
HOSTILE = st.one_of(
    st.sampled_from(
        (
            *(*SHELL, "END", "\n---\nkind: Pod\n", "--privileged", "-n=kube-system", "a" * 64, "a" * 254, ""),
            *("../..", "{{ .x }}", "true", "null", "1e3", "0x1F", "-1", "A_b.C-", "-a", "a-", "a..b", "a/b/c", "/a"),
            *(
                "\x1b[2J",
                "\u202e",
                "caf\u00e9",
                "\u2028",
                "\ufeff",
                "hetgpu.run",
                "kubernetes.io/a",
                "*",
                "&a",
                "#",
                "!!x",
            ),
        )
    ),
    st.text(max_size=80),
)


def text(*good: str) -> st.SearchStrategy[str]:
    return st.one_of(*(st.just(one) for one in good), *(st.just(one) for one in good), HOSTILE)


def mapped(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(keys, values, max_size=3)


KEYS = text("team", "k8s.v1.cni.cncf.io/networks", "a.b/c_d", "x-1")
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "namespace": text("gpu-tests"),
    "context": text("me@cluster"),
    "project": text("team", "a" * 57, "a" * 63),
    "queue": text("fast", "a" * 63),
    "scheduler": text("runai-scheduler", "volcano", "kai-scheduler"),
    "priority_class": text("high.class"),
    "service_account": text("runner"),
    "resources": mapped(
        text("cpu", "memory", "nvidia.com/gpu", "rdma/hca"), text("1", "0", "0.0", "500m", "1.5Gi", "2k")
    ),
    "annotations": mapped(KEYS, text("a", '[{"name": "roce"}]', 'it\'s "x" $HOME')),
    "labels": mapped(KEYS, text("a", "")),
    "node_selector": mapped(KEYS, text("NVIDIA-H200")),
    "tolerations": st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": KEYS,
                "operator": text("Exists", "Equal"),
                "value": text("v"),
                "effect": text("NoExecute", "NoSchedule"),
                "seconds": text("0", "30"),
            },
        ),
        max_size=2,
    ),
    "capabilities": st.lists(text("IPC_LOCK", "SYS_PTRACE"), max_size=2),
    "shm": text("1G", "64M"),
    "claims": mapped(text("scratch"), text("/scratch")),
    "host_network": text("true", "false"),
    "image_pull_secrets": st.lists(text("registry"), max_size=2),
    "ready": text("60", "0.5", "604800"),
    "ttl": text("600", "604800"),
}


@st.composite
def given(draw: st.DrawFn) -> tuple[dict[str, Any], int, str]:
    """Hardware with a few settings, most of them good; a number of nodes; and what the placement is called."""
    names = draw(st.sets(st.sampled_from(sorted(SETTINGS)), max_size=5))
    asked = {name: draw(SETTINGS[name]) for name in sorted(names)}
    image = draw(text("r/x:1", "registry.local:5000/a/b@sha256:" + "0" * 64))
    entry: dict[str, Any] = {
        "runtime": "kubernetes",
        "platform": draw(st.sampled_from(("cpu", "cuda", "rocm"))),
        "image": image,
        "kubernetes": {"kind": draw(st.sampled_from(KINDS)), **asked},
    }
    if draw(st.booleans()):
        # RunAI's command is one more line that values go into.
        entry["kubernetes"] |= {"project": "team", "annotations": {"a": draw(st.sampled_from(SHELL))}}
    return entry, draw(st.integers(1, 3)), draw(text("demo-two"))


def nodes_of(entry: dict[str, Any], count: int) -> list[Node]:
    kind = shape_of(entry).model_validate(entry).hardware("a")
    return [Node(index, kind, f"node{index}", 1) for index in range(count)]


def test_settings(tmp_path: Path) -> None:
    taken = 0

    def check(found: tuple[dict[str, Any], int, str]) -> None:
        nonlocal taken
        entry, count, placement = found
        try:
            nodes = nodes_of(entry, count)
        except ValidationError:
            return
        taken += 1
        made = manifests(nodes, object_name(placement), {"hetgpu.placement": placement, "hetgpu.run": "r"})
        assert [wrong(one) for one in made] == [[] for _ in made]
        assert list(yaml.safe_load_all(kubectl.document(made))) == made
        harmless(kubectl.document(made))
        for pod in templates(made):
            added = pod["spec"]["containers"][0]["securityContext"]["capabilities"].get("add", [])
            assert set(added) <= {*KEPT, *entry["kubernetes"].get("capabilities", [])}

    fuzz(given(), check, examples=400)
    assert taken > 40


def test_what_is_pasted(tmp_path: Path) -> None:
    """A shell that is given a plan runs the clients, and nothing that a value says."""
    clients = 'kubectl() { [ "$1" = x ] || for i in 1 2 3 4; do echo name; done; }\nrunai() { :; }\nset -eu\n'

    def check(found: tuple[dict[str, Any], int, str]) -> None:
        entry, count, placement = found
        try:
            nodes = nodes_of(entry, count)
        except ValidationError:
            return
        name = "".join(character for character in placement if character.isalnum()) or "x"
        lines = [
            *kubectl.creation(nodes, name),
            *kubectl.arrival(nodes, name),
            kubectl.on(nodes[0], "true"),
            kubectl.removal(nodes, name),
        ]
        assert all("\n" not in line for line in lines if line.startswith("#"))
        script = clients + "\n".join(lines) + "\n"
        done = subprocess.run(["sh"], input=script.encode(), cwd=tmp_path, capture_output=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert list(tmp_path.iterdir()) == []

    fuzz(given(), check, examples=150)
