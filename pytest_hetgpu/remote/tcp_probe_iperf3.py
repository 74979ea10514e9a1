"""Measurements by iperf3, if both nodes have it: https://software.es.net/iperf/invoking.html. Python 3.6 or later.

Its server does not authenticate clients. So each test starts one, on the one address, for one client.
"""

import json
import math
import shutil
import socket
import subprocess
from contextlib import suppress
from functools import partial
from typing import Callable

from tcp_probe_streams import Fields, ProbeError, busy_share, cpu_ticks, set_alarm

PROGRAM = "iperf3"


def iperf3_version() -> Fields:
    """Return `version`: `iperf3 3.12`, or "" if it is not installed."""
    where = shutil.which(PROGRAM)
    if not where:
        return {"version": ""}
    try:
        output = subprocess.check_output([where, "--version"], stderr=subprocess.STDOUT, timeout=5).decode()
        return {"version": f"{PROGRAM} {output.split()[1]}"}
    except (OSError, subprocess.SubprocessError, IndexError, UnicodeDecodeError):
        return {"version": ""}


def iperf3_server(listener: socket.socket, patience: float, say: Callable[[Fields], None]) -> Fields:
    """Serve once on the address of `listener`; send the port with `say`; stop after `patience` seconds."""
    address = listener.getsockname()[0]
    with socket.socket(listener.family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
    argv = [PROGRAM, "--server", "--one-off", "--bind", address, "--port", str(port), "--forceflush"]
    server = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=partial(set_alarm, patience + 2),  # noqa: PLW1509 - no threads here; an alarm outlives exec(2)
    )
    try:
        assert server.stdout is not None
        output = b""
        while b"listening" not in output:
            line = server.stdout.readline()
            if not line:
                raise ProbeError(f"iperf3 does not serve: {' '.join(output.decode(errors='replace').split())[-200:]}")
            output += line
        say({"port": port})
        with suppress(subprocess.TimeoutExpired):
            server.communicate(timeout=patience)
        return {}
    finally:
        with suppress(OSError):
            server.kill()
        server.communicate()


def iperf3_client(address: str, port: int, own: str, flow: Fields) -> Fields:
    """Measure a flow (`way`, `streams`, `seconds`), including its first moments; iperf3 counts whole seconds."""
    argv = [PROGRAM, "--client", address, "--port", str(port), "--json", "--parallel", str(flow["streams"])]
    argv += ["--time", str(max(1, math.ceil(flow["seconds"])))]
    argv += ["--reverse"] * (flow["way"] == "back") + (["--bind", own] if own else [])
    before = cpu_ticks()
    done = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        text = done.communicate(timeout=flow["seconds"] + 5)[0]
    except subprocess.TimeoutExpired:
        done.kill()
        done.communicate()
        raise ProbeError("iperf3 did not end") from None
    load = {"way": flow["way"], "streams": flow["streams"], "machine": busy_share(before)}
    return dict(load, **parse_result(text.decode(errors="replace")))


def parse_result(text: str) -> Fields:
    """Parse the output of `iperf3 --json` into `rates` and `core`. Raises ProbeError if it is no result.

    `end.sum_received` is the receiver's. Utilisation is that of iperf3's process (one thread until 3.16), in percent of
    a core.
    """
    try:
        output = json.loads(text)
        if output.get("error"):
            raise ProbeError(f"iperf3: {output['error']}")
        load = output["end"]["cpu_utilization_percent"]
        rate = float(output["end"]["sum_received"]["bits_per_second"]) / 8
        return {"rates": [rate], "core": max(float(load["host_total"]), float(load["remote_total"])) / 100}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProbeError(f"what iperf3 printed cannot be read ({type(error).__name__}: {error})") from None
