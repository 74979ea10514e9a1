"""The near end of an agent's pipe, where the far end is not what it should be: real processes that misbehave."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

import pytest_hetgpu
from pytest_hetgpu.errors import LostNode, ProvisionError
from pytest_hetgpu.extensions.runtimes.agent.link import AgentConnection, agent_source, boot_command
from pytest_hetgpu.extensions.runtimes.agent.node import AgentNode
from pytest_hetgpu.extensions.runtimes.process.pipe import ProcessPipe

PATIENCE = 60.0
MAGIC = b"\0hetgpu-agent 1\0"
HELLO = {
    "id": 0,
    "pid": 1,
    "host": "h",
    "user": "u",
    "uid": 1,
    "cpus": 1,
    "python": "3.6.0",
    "folder": "/tmp/x",
    "path": "/bin",
    "subreaper": True,
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far ends that misbehave do not end by themselves either."""
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.process.pipe._PATIENCE", 0.2)


def frame(fields: object, body: bytes = b"") -> bytes:
    head = json.dumps(fields).encode()
    return struct.pack("!II", len(head), len(body)) + head + body


def says(*data: bytes, then: str = "sys.stdin.buffer.read()") -> tuple[str, ...]:
    """A far end that prints `data`, without reading the agent first, and then does `then`."""
    program = f"import os, sys, signal\nfor data in {data!r}: os.write(1, data)\n{then}"
    return (sys.executable, "-S", "-c", program)


def link(*argv: str, patience: float = PATIENCE) -> AgentConnection:
    return AgentConnection(ProcessPipe(argv), "n0", patience=patience)


def refusal(*argv: str, patience: float = PATIENCE) -> str:
    pipe = ProcessPipe(argv)
    with pytest.raises(ProvisionError) as caught:
        AgentConnection(pipe, "n0", patience=patience)
    assert not isinstance(caught.value, LostNode)
    assert pipe.returncode() is not None  # closed, and its process gone
    return str(caught.value)


def test_a_far_end_that_ends_at_once_says_why() -> None:
    assert refusal("sh", "-c", "echo only this >&2; exit 3") == "n0: only this"
    assert refusal("sh", "-c", "exit 3") == "n0: the connection ended (exit status 3)"
    assert refusal("sh", "-c", "kill -9 $$") == "n0: the connection ended (signal 9)"
    greeted = refusal("sh", "-c", "echo Your password has expired; exit 1")
    assert greeted == "n0: the connection ended (exit status 1); it printed: Your password has expired"


def test_a_far_end_that_says_nothing_is_given_up() -> None:
    assert refusal("sleep", "1000", patience=0.2).startswith("n0: no answer from python3 on the node within 0.2 s")
    talks = refusal("sh", "-c", "echo Enter your token:; exec sleep 1000", patience=1.0)
    assert talks.endswith("; it printed: Enter your token:")


def test_a_far_end_that_is_no_agent_is_not_listened_to_for_ever() -> None:
    assert "its agent's answers cannot be read (" in refusal("yes")
    assert "its agent's answers cannot be read" in refusal(*says(MAGIC, frame(HELLO)[:4] + b"\0\0\0\1" + b"x" * 200))
    assert "its agent's answers cannot be read" in refusal(*says(MAGIC, frame({"no": "id"})))


def test_an_agent_that_cannot_work_says_so() -> None:
    said = refusal(*says(MAGIC, frame({"id": 0, "error": "no folder to write to: tried /tmp"})))
    assert said == "n0: no folder to write to: tried /tmp"


def test_a_greeting_before_the_agent_is_passed_over() -> None:
    node = link(*says(b"Last login: never\n\0", MAGIC[:5], MAGIC[5:] + frame(HELLO)[:7], frame(HELLO)[7:]))
    assert (node.hello.host, node.hello.folder) == ("h", "/tmp/x")
    node.give_up("enough")


def test_an_agent_that_does_not_answer_is_lost() -> None:
    node = link(*says(MAGIC, frame(HELLO)))
    with pytest.raises(LostNode, match=r"n0: its agent did not answer within 0\.1 s"):
        node.request("interfaces", patience=0.1)
    assert node.lost() == "its agent did not answer within 0.1 s"
    with pytest.raises(LostNode, match="did not answer"):
        node.request("interfaces")
    node.close()


def test_all_who_wait_learn_of_the_end() -> None:
    node = link(
        *says(MAGIC, frame(HELLO), then="sys.stdin.buffer.read(int(sys.argv[1])); sys.exit('pulled the plug')"),
        str(len(agent_source()) + 1),
    )
    ready = threading.Barrier(5)

    def ask() -> str:
        ready.wait(PATIENCE)
        with pytest.raises(LostNode) as caught:
            node.request("interfaces")
        return str(caught.value)

    with ThreadPoolExecutor(5) as crowd:
        said = {done.result() for done in [crowd.submit(ask) for _ in range(5)]}
    assert said == {"n0: pulled the plug"}
    assert node.lost() == "pulled the plug"
    node.close()


def test_they_learn_of_it_too_where_nobody_can_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessPipe, "why_ended", Mock(side_effect=ZeroDivisionError))
    monkeypatch.setattr(threading, "excepthook", Mock())
    node = link(*says(MAGIC, frame(HELLO), then="sys.stdin.buffer.read(1)"))
    with pytest.raises(LostNode, match="the connection ended"):
        node.request("interfaces", patience=PATIENCE)
    node.close()


def test_answers_find_who_asked_whatever_their_order() -> None:
    answers = frame({"id": 2, "up": ["second"]}) + frame({"id": 9, "up": []}) + frame({"id": 1, "up": ["first"]})
    waits = f"sys.stdin.buffer.read({len(agent_source()) + 1}); os.write(1, {answers!r}); signal.pause()"
    node = link(*says(MAGIC, frame(HELLO), then=waits))
    calls = [node.call("interfaces") for _ in range(2)]
    replies = [node.wait(call, PATIENCE) for call in calls]
    assert [reply.fields["up"] for reply in replies if reply] == [["first"], ["second"]]
    node.give_up("enough")


def test_an_old_python_is_no_mystery(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 'SyntaxError: invalid syntax' >&2; exit 1\n")
    old.chmod(0o755)
    assert "SyntaxError" in refusal(*boot_command(str(old)))


def agent_module(name: str) -> ModuleType:
    """One of the agent's modules, as it would run on a node."""
    path = Path(pytest_hetgpu.__file__).parent / "remote" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_pidfd(source: bytes) -> bytes:
    marked = b"def pidfd(pid: int) -> int:\\n"
    assert marked in source
    return source.replace(marked, marked + b'    raise OSError(38, "Function not implemented")\\n', 1)


def no_change(source: bytes) -> bytes:
    return source


@pytest.mark.parametrize("change", [no_change, without_pidfd])
def test_an_old_kernel_will_do(
    change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = change(agent_source())
    monkeypatch.setattr("pytest_hetgpu.extensions.runtimes.agent.link.agent_source", lambda: source)
    member = AgentNode("n0", link(*boot_command(sys.executable)))
    answer = member.exec(
        ("sh", "-c", "cat; sleep 0.05; echo err >&2; (setsid sleep 1000 &); exit 3"), stdin=b"x" * 100_000
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, b"x" * 100_000, b"err\n")
    assert [name.partition(" ")[0] for name in member.sweep()] == ["sleep"]
    with pytest.raises(ProvisionError, match=r"took more than 0\.1 s"):
        member.exec(("sleep", "1000"), timeout=0.1)
    member.close()


def test_the_table_of_processes_reads_odd_names() -> None:
    tree = agent_module("agent_tree")
    program = "import ctypes; ctypes.CDLL(None).prctl(15, b') Z 1 (x'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        parent, name, state = tree.processes()[odd.pid]
        assert name == ") Z 1 (x"
        assert state in "SR"
        assert odd.pid in set(tree.descendants(tree.processes(), [parent]))
        assert odd.pid not in set(tree.descendants(tree.processes(), [parent], spared={odd.pid}))
        odd.communicate(b"\n")
