"""Measures the TCP bandwidth from one node to another: `serve` on the one, then `measure` on the other.

    python3 tcp_probe.py < REQUEST > ANSWER

Request and answer are a JSON object each. Both requests have:

    do        `serve` or `measure`
    token     a random secret of the two nodes; clients without it are not served
    netdev    the node's interface in the network to measure; "" to use `host`
    host      the node's name for others: the address to listen on if there is no `netdev`
    limit     seconds after which all remaining processes end by themselves

The server listens on one address, on a port of the kernel's choice. The answering process (`address`, `port`, `place`)
ends at once. It leaves a process behind, which serves one client and ends. `measure` also takes:

    address, port    the answer of the server
    streams          numbers of parallel connections, [1, 4]
    seconds          the time in which data is counted, per measurement
    warm             seconds of uncounted data before that
    intervals        the number of parts of that time
    iperf3           whether to use iperf3 if both nodes have it

Its answer has `tool`, `flows`, `rtt` and `place`. Each of `flows` has these fields:

    way       `there`: from here to the server; `back`
    streams   the number of connections
    rates     bytes per second at the receiver, one per interval
    core      the largest share of a core that a stream's process used
    machine   the busy share of all cores, on the busier node

`rtt` has `median` and `least` (seconds of a round trip of 8 bytes). After a failure there is `error`, too.
`passed_over` is the reason why iperf3 was not used.

It runs on nodes alone, with Python 3.6 or later and the modules beside it.
"""

import hashlib
import hmac
import json
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Callable, Iterator, List, NoReturn, Tuple

from tcp_probe_iperf3 import iperf3_client, iperf3_server, iperf3_version
from tcp_probe_network import addresses, endpoint, listen_on_node, network_id
from tcp_probe_streams import Fields, ProbeError, receive_data, send_data, set_alarm

TOOL = "pump 1"
PATIENCE = 3.0  # seconds for a connection, or a word on it
NONCE, DIGEST, PING = 16, 32, 8  # bytes
CONTROL, STREAM = b"C", b"S"
TRIPS, TRIPS_FOR = 1000, 0.1  # round trips, and the seconds that they may take


def sign_nonce(token: str, nonce: bytes, role: bytes) -> bytes:
    """Return the proof of the token for this nonce alone."""
    return hmac.new(token.encode(), nonce + role, hashlib.sha256).digest()


def receive_exactly(conn: socket.socket, size: int) -> bytes:
    """Receive `size` bytes. Raises ProbeError if the connection ends before."""
    data = b""
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            raise ProbeError("the connection was closed")
        data += more
    return data


class ControlChannel:
    """A connection that carries lines of JSON."""

    def __init__(self, conn: socket.socket) -> None:
        self.conn = conn
        self.file = conn.makefile("rb")

    def send_line(self, fields: Fields) -> None:
        """Send one object."""
        self.conn.sendall(json.dumps(fields).encode() + b"\n")

    def receive_line(self, seconds: float) -> Fields:
        """Receive one object; {} at the end. Raises ProbeError on a timeout, and for an error of the other node."""
        self.conn.settimeout(seconds)
        try:
            line = self.file.readline(1 << 20)
        except socket.timeout:  # noqa: UP041 - another error before 3.10
            raise ProbeError(f"no word from the other node for {seconds:g} s") from None
        fields = json.loads(line.decode()) if line else {}  # type: Fields
        if fields.get("error"):
            raise ProbeError(fields["error"])
        return fields


class ProbeServer:
    """A server of one client, whose requests come on its control connection.

    The methods named `do_...` are the requests.
    """

    def __init__(self, listener: socket.socket, request: Fields) -> None:
        self.listener = listener
        self.token = request["token"]
        self.deadline = time.monotonic() + request["limit"]

    def accept(self, role: bytes) -> socket.socket:
        """Accept the next connection with the token and this role; close all others."""
        while True:
            self.listener.settimeout(max(0.01, self.deadline - time.monotonic()))
            conn, _ = self.listener.accept()
            nonce = os.urandom(NONCE)
            with suppress(OSError, ProbeError):
                conn.settimeout(PATIENCE)
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conn.sendall(nonce)
                reply = receive_exactly(conn, len(role) + DIGEST)
                if reply[:1] == role and hmac.compare_digest(reply[1:], sign_nonce(self.token, nonce, role)):
                    return conn
            conn.close()

    def serve(self) -> None:
        """Answer until the client closes its control connection."""
        control = ControlChannel(self.accept(CONTROL))
        while True:
            request = control.receive_line(max(0.01, self.deadline - time.monotonic()))
            if not request:
                return
            try:
                control.send_line(getattr(self, "do_" + request["do"])(request, control))
            except (OSError, ProbeError) as error:
                control.send_line({"error": str(error)})

    def streams(self, count: int) -> List[socket.socket]:
        """Accept `count` connections for data."""
        return [self.accept(STREAM) for _ in range(count)]

    def do_there(self, request: Fields, _: ControlChannel) -> Fields:
        return receive_data(self.streams(request["streams"]), request["warm"], request["seconds"], request["intervals"])

    def do_back(self, request: Fields, _: ControlChannel) -> Fields:
        return send_data(self.streams(request["streams"]), request["warm"], request["seconds"])

    def do_echo(self, _: Fields, __: ControlChannel) -> Fields:
        with self.accept(STREAM) as conn:
            block = conn.recv(PING)
            while block:
                conn.sendall(block)
                block = conn.recv(PING)
        return {}

    def do_iperf3(self, request: Fields, control: ControlChannel) -> Fields:
        """Send the port of an iperf3 server to the client, and wait until it has served once."""
        return (
            iperf3_server(self.listener, request["patience"], control.send_line) if request["use"] else iperf3_version()
        )


def serve(request: Fields) -> Fields:
    """Leave a server process behind; return its address."""
    listener = listen_on_node(request)
    name = listener.getsockname()
    if os.fork():
        return {"address": name[0], "port": name[1], "place": network_id()}
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(nothing, file)
        set_alarm(request["limit"] + 1.0)
        ProbeServer(listener, request).serve()
    finally:
        os._exit(0)


class ProbeClient:
    """The measuring side of a probe."""

    def __init__(self, request: Fields) -> None:
        self.request = request
        self.family = socket.AF_INET6 if ":" in request["address"] else socket.AF_INET
        self.peer = endpoint(self.family, request["address"].partition("%")[0], request["port"], request["netdev"])
        own = [address for family, address in addresses(request["netdev"]) if family == self.family]
        self.source = endpoint(self.family, own[0], 0, request["netdev"]) if request["netdev"] and own else None
        self.control = ControlChannel(self.connect(CONTROL))

    def connect(self, role: bytes) -> socket.socket:
        """Connect with the token. Raises ProbeError that names the server's address."""
        conn = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            conn.settimeout(PATIENCE)
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.source:
                conn.bind(self.source)
            conn.connect(self.peer)
            conn.sendall(role + sign_nonce(self.request["token"], receive_exactly(conn, NONCE), role))
        except (OSError, ProbeError) as error:
            conn.close()
            raise ProbeError(f"{self.peer[0]} port {self.peer[1]}: {getattr(error, 'strerror', '') or error}") from None
        return conn

    def rtt(self) -> Fields:
        """Measure the round trip of a small message, in seconds."""
        self.control.send_line({"do": "echo"})
        trips = []
        with self.connect(STREAM) as conn:
            end = time.monotonic() + TRIPS_FOR
            while len(trips) < TRIPS and (len(trips) < 3 or time.monotonic() < end):
                began = time.monotonic()
                conn.sendall(b"\0" * PING)
                receive_exactly(conn, PING)
                trips.append(time.monotonic() - began)
        self.control.receive_line(PATIENCE)
        counted = sorted(trips[len(trips) // 10 :])
        return {"median": counted[len(counted) // 2], "least": counted[0]}

    def flow(self, way: str, streams: int, warm: float) -> Fields:
        """Measure data in one direction, counted by the receiver."""
        request = self.request
        plan = {"streams": streams, "warm": warm, "seconds": request["seconds"], "intervals": request["intervals"]}
        self.control.send_line(dict(plan, do=way))
        conns = [self.connect(STREAM) for _ in range(streams)]
        if way == "there":
            sent = send_data(conns, warm, request["seconds"])
            received = self.control.receive_line(PATIENCE)
        else:
            received = receive_data(conns, warm, request["seconds"], request["intervals"])
            sent = self.control.receive_line(PATIENCE)
        load = {name: max(sent[name], received[name]) for name in ("core", "machine")}
        return dict(load, way=way, streams=streams, rates=received["rates"])

    def iperf3(self, way: str, streams: int, _: float) -> Fields:
        """Measure data in one direction by iperf3."""
        patience = self.request["seconds"] + 2 * PATIENCE
        self.control.send_line({"do": "iperf3", "use": True, "patience": patience})
        port = self.control.receive_line(PATIENCE)["port"]
        own = self.source[0] if self.source else ""
        try:
            flow = {"way": way, "streams": streams, "seconds": self.request["seconds"]}
            return iperf3_client(self.peer[0], port, own, flow)
        finally:
            self.control.receive_line(patience)

    def tools(self) -> Iterator[Tuple[str, Callable[[str, int, float], Fields]]]:
        """Yield the tools to try: iperf3 if both nodes have it and it is wanted, then our own."""
        own = iperf3_version()["version"] if self.request["iperf3"] and not self.peer[0].startswith("fe80:") else ""
        if own:
            self.control.send_line({"do": "iperf3", "use": False})
            if self.control.receive_line(PATIENCE)["version"]:
                yield own, self.iperf3
        yield TOOL, self.flow


def measure(request: Fields) -> Fields:
    """Measure round trips, then data both ways over each number of streams; return the successful part."""
    found = {"tool": TOOL, "place": network_id(), "flows": []}  # type: Fields
    try:
        client = ProbeClient(request)
        found["rtt"] = client.rtt()
        # The TCP window opens within some round trips.
        warm = max(request["warm"], min(20 * found["rtt"]["median"], 2.0))
        for tool, flow in client.tools():
            found.update(tool=tool, flows=[])
            try:
                for streams in request["streams"]:
                    found["flows"] += [flow(way, streams, warm) for way in ("there", "back")]
            except ProbeError as trouble:
                if tool == TOOL:
                    raise
                found["passed_over"] = str(trouble)
            else:
                break
    except (OSError, ProbeError) as error:
        found["error"] = str(error)
    return found


def main() -> NoReturn:
    """Answer one request."""
    request = json.loads(sys.stdin.read())
    set_alarm(request["limit"] + 1.0)
    try:
        answer = {"serve": serve, "measure": measure}[request["do"]](request)
    except (OSError, ProbeError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
