"""The `runai submit-dist pytorch` command that requests the nodes of a placement from RunAI. Pure.

https://docs.run.ai/v2.13/Researcher/cli-reference/runai-submit-dist-pytorch/
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

from pytest_hetgpu.extensions.runtimes.pods.request import GPUS, RUNAI, Pods

_SHARED_MEMORY = 64 * 1024**2  # bytes of /dev/shm that containers have anyway
_NODE = "HETGPU_NODE"
# RunAI sets these in each pod; they count pods, not ranks.
_TOLD = {"--nnodes": "$WORLD_SIZE", "--node-rank": "$RANK", "--rdzv-endpoint": "$MASTER_ADDR:$MASTER_PORT"}
_DROPPED = ("--rdzv-conf", "--local-addr", "--rdzv-id")


def submission(pods: Sequence[Pods], name: str, argv: Sequence[str], env: Sequence[tuple[str, str]] = ()) -> str:
    """Return the line for a shell; "" if the pods differ or do not belong to RunAI.

    RunAI starts a master besides its workers. It passes the words after `--` to a shell in each pod. Quotes there
    belong to that shell, so the shell of the user must not remove them.
    """
    if not pods or pods[0].scheduled_by != RUNAI or any(one != pods[0] for one in pods):
        return ""
    return shlex.join((*_words(pods[0], name, len(pods), env), "--")) + "".join(f" {_twice(word)}" for word in argv)


def batch(pods: Sequence[Pods], name: str, argv: Sequence[str], programs: str) -> tuple[str, str]:
    """Return a torchrun job in the form that RunAI starts, and its folder of rank programs; "" and "" for other jobs.

    The programs are on the first claim, because images lack them: `programs` is their folder in `argv`. The output of
    each pod is written beside them, as RunAI drops it after a time. Ranks find each other by the variables that RunAI
    sets in a pod.
    """
    alike = bool(pods) and pods[0].claims and len(argv) > 1 and argv[1].endswith("/torchruns.py")
    if not alike or "-H" not in argv:
        return "", ""
    mount = next(iter(pods[0].claims.values()))
    first = [*argv[argv.index("-H") + 2 :], ":"]
    words = [word.replace(programs, f"{mount}/hetgpu/programs") for word in first[: first.index(":")]]
    env: list[tuple[str, str]] = []
    if words and words[0] == "env":
        given = list(itertools.takewhile(lambda word: "=" in word, words[1:]))
        words = words[1 + len(given) :]
        env = [(key, value) for key, _, value in (word.partition("=") for word in given) if key != _NODE]
    script = f"{_NODE}=$RANK {' '.join(_in_pods(words))} 2>&1 | tee {mount}/hetgpu/{name}-$RANK.log"
    return submission(pods, name, ("bash", "-o", "pipefail", "-c", script), env), f"{mount}/hetgpu/programs"


def _in_pods(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of torchrun for any pod; variables in the pod identify it."""
    left = iter(words)
    for word in left:
        if word in _DROPPED:
            next(left, None)
        elif word in _TOLD:
            next(left, None)
            yield from (word, _TOLD[word])
        else:
            yield shlex.quote(word)


def _words(pods: Pods, name: str, count: int, env: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield from ("runai", "submit-dist", "pytorch", "--name", name)
    yield from ("--project", pods.project) if pods.project else ()
    yield from ("--image", pods.image, "--workers", str(count - 1))
    asked = {resource: amount for resource, amount in pods.resources.items() if amount != "0"}
    yield from ("--gpu", next((amount for resource, amount in asked.items() if resource in GPUS.values()), "0"))
    for option in ("cpu", "memory"):
        yield from (f"--{option}", asked[option]) if option in asked else ()
    for claim, path in pods.claims.items():
        yield from ("--pvc", f"{claim}:{path}")
    for key, value in pods.annotations.items():
        yield from ("--annotation", f"{key}={value}")
    for resource, amount in asked.items():
        if resource not in (*GPUS.values(), "cpu", "memory"):
            yield from ("--extended-resource", f"{resource}={amount}")
    for key, value in env:
        yield from ("-e", f"{key}={value}")
    if pods.shm and pods.shm > _SHARED_MEMORY:
        yield "--large-shm"


def _twice(word: str) -> str:
    """Quote a word for the shell of a pod, then for the shell of the user: `'"a b"'`."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", word, re.ASCII):
        return word
    there = re.sub(r'([\\"$`])', r"\\\1", word)
    return shlex.quote(f'"{there}"')
