"""The program that measures the bandwidth between two nodes, run for real over loopback."""

from __future__ import annotations

import ast
import importlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "pytest_hetgpu" / "remote"
FILES = ("tcp_probe.py", "tcp_probe_network.py", "tcp_probe_streams.py", "tcp_probe_iperf3.py")
PLAN = {"streams": [1, 2], "seconds": 0.1, "warm": 0.02, "intervals": 4, "iperf3": False}
SO_MAX_PACING_RATE = 47  # asm-generic/socket.h

IPERF3 = """\
#!/bin/sh
case "$*" in
  *--version*) echo "iperf 3.12 (cJSON 1.7.15)"; exit ;;
  *--server*) echo "Server listening on 5201 (test #1)"; exec sleep 1 ;;
esac
cat <<EOT
{"start": {"version": "iperf 3.12"}, "intervals": [],
 "end": {"sum_sent": {"bits_per_second": 9.9e9}, "sum_received": {"bits_per_second": 8.0e9},
         "cpu_utilization_percent": {"host_total": 12.5, "remote_total": 37.5}}}
EOT
"""
PACED = """\
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as conn:
    conn.setsockopt(socket.SOL_SOCKET, int(sys.argv[2]), int(sys.argv[3]))
    try:
        while True:
            conn.send(b"x" * 65536)
    except OSError:
        pass
"""


def ask(request: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the program's answer."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "tcp_probe.py")],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}" if path else os.environ["PATH"]},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def serve(token: str, path: str = "", **more: Any) -> dict[str, Any]:
    """Start a server and return its address; `path` precedes PATH."""
    return ask({"do": "serve", "token": token, "netdev": "lo", "host": "", "limit": 20.0, **more}, path)


def measure(token: str, where: dict[str, Any], path: str = "", netdev: str = "lo", **more: Any) -> dict[str, Any]:
    """Measure against a server."""
    request = {"do": "measure", "token": token, "netdev": netdev, "host": "", "limit": 20.0, **PLAN}
    return ask({**request, "address": where["address"], "port": where["port"], **more}, path)


def listeners(port: int) -> list[str]:
    """Return the addresses with a listener on this port."""
    found = [one.laddr for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    return [name.ip for name in found if name and name.port == port]


@pytest.mark.parametrize("name", FILES)
def test_it_is_written_for_the_oldest_python_of_a_cluster(name: str) -> None:
    ast.parse((PROGRAMS / name).read_text(encoding="utf-8"), feature_version=(3, 6))


def test_both_ways_with_one_stream_and_several() -> None:
    token = secrets.token_hex(8)
    where = serve(token)
    assert where["address"] == "127.0.0.1"
    found = measure(token, where)
    assert "error" not in found
    assert found["tool"] == "pump 1"
    assert [(flow["way"], flow["streams"]) for flow in found["flows"]] == [
        ("there", 1),
        ("back", 1),
        ("there", 2),
        ("back", 2),
    ]
    for flow in found["flows"]:
        assert len(flow["rates"]) == 4
        assert sum(flow["rates"]) > 0
        assert flow["core"] >= 0
        assert 0 <= flow["machine"] <= 1
    assert 0 < found["rtt"]["least"] <= found["rtt"]["median"] < 1
    assert found["place"] == where["place"] != ""


def test_a_node_without_an_interface_is_listened_on_at_its_address() -> None:
    token = secrets.token_hex(8)
    where = serve(token, netdev="", host="localhost")
    assert "error" not in measure(token, where, netdev="")


def test_ipv6_alone() -> None:
    token = secrets.token_hex(8)
    where = serve(token, netdev="", host="::1")
    if "error" in where:
        pytest.skip(f"no IPv6 here: {where['error']}")
    assert where["address"] == "::1"
    assert "error" not in measure(token, where)


@pytest.mark.parametrize(
    ("netdev", "host", "said"),
    [
        ("nothing0", "", "it has no interface nothing0"),
        ("", "192.0.2.1", "cannot listen on 192.0.2.1"),
        ("", "nowhere.invalid", "nowhere.invalid"),
    ],
)
def test_where_it_cannot_listen_it_says_why(netdev: str, host: str, said: str) -> None:
    assert said in serve("token", netdev=netdev, host=host)["error"]


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and sends nothing, as behind some firewalls."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_nobody_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = measure("token", {"address": "127.0.0.1", "port": port})
    assert found["error"] == f"127.0.0.1 port {port}: Connection refused"
    assert found["flows"] == []


def test_who_says_nothing_is_not_waited_for(silent: int) -> None:
    began = time.monotonic()
    found = measure("token", {"address": "127.0.0.1", "port": silent})
    assert found["error"] == f"127.0.0.1 port {silent}: timed out"
    assert time.monotonic() - began < 10


def knock(where: dict[str, Any]) -> bool:
    """Return whether the server accepts us; wait until it closes the connection."""
    try:
        with socket.create_connection((where["address"], where["port"]), timeout=20) as conn:
            while conn.recv(64):
                pass
    except ConnectionRefusedError:
        return False
    except ConnectionError:
        pass
    return True


def knock_until_gone(where: dict[str, Any]) -> None:
    """Return when the listener is gone, which the server closes last."""
    while knock(where):
        pass


def test_who_does_not_know_the_token_gets_nothing_and_the_next_one_is_served() -> None:
    token = secrets.token_hex(8)
    where = serve(token)
    assert listeners(where["port"]) == ["127.0.0.1"]
    assert "error" in measure("another", where)
    assert "error" not in measure(token, where)
    knock_until_gone(where)


def test_a_server_that_nobody_comes_to_ends_by_itself() -> None:
    knock_until_gone(serve("token", limit=0.3))


def test_what_comes_at_a_known_pace_is_read_as_that() -> None:
    sys.path.insert(0, str(PROGRAMS))
    try:
        streams = importlib.import_module("tcp_probe_streams")
    finally:
        sys.path.remove(str(PROGRAMS))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        argv = [sys.executable, "-c", PACED, *map(str, (port, SO_MAX_PACING_RATE, 20_000_000))]
        senders = [subprocess.Popen(argv) for _ in range(2)]
        conns = [listener.accept()[0] for _ in senders]
    found = streams.receive_data(conns, 0.2, 0.5, 5)
    assert [sender.wait(20) for sender in senders] == [0, 0]
    assert sorted(found["rates"])[2] == pytest.approx(40e6, rel=0.1)


@pytest.mark.slow
def test_iperf3_where_both_have_it(tmp_path: Path) -> None:
    program = tmp_path / "iperf3"
    program.write_text(IPERF3)
    program.chmod(0o755)
    path = str(tmp_path)
    token = secrets.token_hex(8)
    both = measure(token, serve(token, path), path, iperf3=True)
    assert "error" not in both
    assert both["tool"] == "iperf3 3.12"
    assert [flow["rates"] for flow in both["flows"]] == [[1e9]] * 4
    assert {flow["core"] for flow in both["flows"]} == {0.375}
    only_one = measure(token, serve(token), path, iperf3=True)
    assert only_one["tool"] == "pump 1"


@pytest.mark.parametrize(
    ("prints", "said"),
    [
        ('{"start": {}, "error": "unable to connect to server"}', "iperf3: unable to connect to server"),
        ("Segmentation fault", "what iperf3 printed cannot be read"),
        ('{"end": {}}', "what iperf3 printed cannot be read"),
    ],
)
def test_where_iperf3_fails_the_pump_does_it(tmp_path: Path, prints: str, said: str) -> None:
    program = tmp_path / "iperf3"
    program.write_text(IPERF3.replace("exec sleep 1", "exit").partition("cat <<EOT")[0] + f"echo '{prints}'\n")
    program.chmod(0o755)
    token = secrets.token_hex(8)
    found = measure(token, serve(token, str(tmp_path)), str(tmp_path), iperf3=True)
    assert "error" not in found
    assert found["tool"] == "pump 1"
    assert len(found["flows"]) == 4
    assert said in found["passed_over"]
