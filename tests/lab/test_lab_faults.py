"""Faults that only real nodes have: each with its outcome and its key."""

from __future__ import annotations

import contextlib
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
ALLREDUCE = "allreduce: {sizes: [8, 64K], iterations: 5}"
LONG = "allreduce: {sizes: 64K, iterations: 2000, timeout: 60}"


@dataclass(frozen=True)
class Fault:
    """What is done to the second guest before the cell and undone after it, or done once its ranks run."""

    name: str
    outcome: str
    signature: str = ""
    before: str = ""
    after: str = ""
    transport: str = RC % ""
    workload: str = ALLREDUCE
    during: Callable[[Guest], None] | None = None


FAULTS = (
    Fault("no-gid", "transport_unavailable", "no-transport@ucx", transport=RC % ", env: {UCX_IB_GID_INDEX: 7}"),
    Fault(
        "wrong-hca", "transport_unavailable", "no-transport@ucx", transport=RC % ', env: {UCX_NET_DEVICES: "rxe9:1"}'
    ),
    Fault("no-ud", "transport_unavailable", "no-transport@ucx", transport="rc: {family: ucx, tls: [rc_verbs, self]}"),
    Fault("panic", "network_failure", "lost@ssh", workload=LONG, during=Guest.panic),
    # On one link these harm nothing: both GIDs reach the peer, the MTU is negotiated, and lost packets are sent again.
    Fault("gid-ipv6", "passed", transport=RC % ", env: {UCX_IB_GID_INDEX: 0}"),
    Fault("mtu", "passed", before="ip link set eth0 mtu 9000", after="ip link set eth0 mtu 1500"),
    Fault("loss", "passed", before="tc qdisc add dev eth0 root netem loss 5%", after="tc qdisc del dev eth0 root"),
    Fault("delay", "passed", before="tc qdisc add dev eth0 root netem delay 20ms", after="tc qdisc del dev eth0 root"),
    Fault("clock", "passed", before="date -s '+1 hour'", after="date -s '-1 hour'"),
)


@pytest.fixture
def second(guests: Lab) -> Iterator[Guest]:
    """The guest to which it happens; a new one takes its place where it is gone."""
    yield guests.guests[-1]
    guests.repair()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_judged(fault: Fault, second: Guest, cells: Cells, guests: Lab) -> None:
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
    assert (cell["outcome"], cell.get("signature", "")) == (fault.outcome, fault.signature)


def _once_it_runs(guest: Guest, what: Callable[[Guest], None]) -> None:
    while True:
        with contextlib.suppress(RuntimeError):
            guest.run("until pgrep -f '[a]llreduce.py' >/dev/null; do sleep 0.5; done; sleep 3", 100)
            break
    what(guest)
