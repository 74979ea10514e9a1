"""Faults that only real nodes have: each with its outcome and its key, and with the known failure that explains it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.lab.conftest import Cells
from tests.lab.lab import Guest, Lab

pytestmark = [pytest.mark.real, pytest.mark.nightly]

HEAD = """\
name: lab
hardware:
  guest:
    {runtime: ssh, fabric: {kind: roce, hca: rxe0, netdev: eth0}, mpi: {stack: openmpi-5, prefix: /opt/openmpi-5}}
axes:
  placement: {two: [guest, guest]}
"""
RC = "rc: {family: ucx, tls: [rc_verbs, ud_verbs, self]%s}"
ALLREDUCE = "allreduce: {sizes: [8, 64K], iterations: 5%s}"
STOP_SSHD = "kill $(cat /run/sshd.pid); while [ -e /run/sshd.pid ]; do sleep 0.1; done"
LONG = "allreduce: {sizes: 64K, iterations: 2000, timeout: 60}"


@dataclass(frozen=True)
class Fault:
    """What is done to the second guest before the cell and undone after it, or done once its ranks run."""

    name: str
    before: str = ""
    after: str = ""
    transport: str = RC % ""
    workload: str = ALLREDUCE % ""
    during: Callable[[Guest], None] | None = None
    outcome: str = ""
    signature: str = ""
    known: str = ""


FAULTS = (
    Fault("no-gid", transport=RC % ", env: {UCX_IB_GID_INDEX: 7}"),
    Fault("gid-ipv6", transport=RC % ", env: {UCX_IB_GID_INDEX: 0}"),
    Fault("wrong-hca", transport=RC % ', env: {UCX_NET_DEVICES: "rxe9:1"}'),
    Fault("no-ud", transport="rc: {family: ucx, tls: [rc_verbs, self]}"),
    Fault(
        "memlock",
        f"{STOP_SSHD}; ulimit -l 64; setpriv --bounding-set -ipc_lock bash /run/serve",
        f"{STOP_SSHD}; ulimit -l unlimited; bash /run/serve",
    ),
    Fault("mtu", "ip link set eth0 mtu 9000", "ip link set eth0 mtu 1500"),
    Fault("loss", "tc qdisc add dev eth0 root netem loss 5%", "tc qdisc del dev eth0 root"),
    Fault("delay", "tc qdisc add dev eth0 root netem delay 20ms", "tc qdisc del dev eth0 root"),
    Fault(
        "no-carrier",
        "ip link add link eth0 name eth0.5 type vlan id 5 && rdma link add rxe1 type rxe netdev eth0.5",
        "rdma link del rxe1; ip link del eth0.5",
        transport=RC % ', env: {UCX_NET_DEVICES: "rxe1:1"}',
    ),
    Fault("clock", "date -s '+1 hour'", "date -s '-1 hour'"),
    Fault("panic", workload=LONG, during=Guest.panic),
    Fault("power", workload=LONG, during=Guest.end),
    Fault("freeze", workload=LONG, during=lambda guest: guest.send(signal.SIGSTOP)),
)


@pytest.fixture
def second(guests: Lab) -> Iterator[Guest]:
    """The guest to which it happens; a new one takes its place where it is gone."""
    yield guests.guests[-1]
    guests.repair()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named(fault: Fault, second: Guest, cells: Cells, guests: Lab) -> None:
    matrix = f"{HEAD}  transport: {{{fault.transport}}}\n  workload: {{{fault.workload}}}\n"
    if fault.before:
        second.run(fault.before)
    with contextlib.ExitStack() as stack:
        if fault.after:
            stack.callback(second.run, fault.after)
        if fault.during:
            meanwhile = threading.Thread(target=_once_it_runs, args=(second, fault.during), daemon=True)
            meanwhile.start()
        (cell,) = cells(matrix).values()
    print(
        "RESULT",
        fault.name,
        {
            k: v
            for k, v in cell.items()
            if k in ("outcome", "signature", "why", "known", "verdict", "carried_by[off-host]", "cause")
        },
    )
    assert cell["outcome"] == (fault.outcome or "?")


def _once_it_runs(guest: Guest, what: Callable[[Guest], None]) -> None:
    while True:
        with contextlib.suppress(RuntimeError):
            guest.run("until pgrep -f '[a]llreduce.py' >/dev/null; do sleep 0.5; done; sleep 3", 100)
            break
    what(guest)
