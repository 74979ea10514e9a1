"""Faults that only real nodes have: each with its outcome and its key."""

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
    {runtime: ssh, fabric: {kind: roce, hca: %s}, mpi: {stack: openmpi-5, prefix: /opt/openmpi-5}}
axes:
  placement: {two: [guest, guest]}
  transport: {rc: {family: ucx, tls: [rc_verbs, %sself], env: {%s}}}
  workload: {allreduce: {%s}}
"""
LONG = "sizes: 64K, iterations: 2000, timeout: 90"
LARGE = "sizes: 128M, iterations: 1"
# A second device, on an interface that is down.
NO_CARRIER = "ip link add lab0 type dummy; ip link set lab0 down; rdma link add rxe1 type rxe netdev lab0"
# Every packet of RoCE that leaves (UDP to port 4791) is lost, as a firewall may do it.
BLOCKED = """\
tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 &&
tc qdisc add dev eth0 parent 1:4 netem loss 100% &&
tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dport 4791 0xffff flowid 1:4"""
IN_CGROUP = """\
echo +memory >/sys/fs/cgroup/cgroup.subtree_control; mkdir /sys/fs/cgroup/lab
echo 200M >/sys/fs/cgroup/lab/memory.max; cat /run/sshd.pid >/sys/fs/cgroup/lab/cgroup.procs"""
LOCKED = """\
kill $(cat /run/sshd.pid); while [ -e /run/sshd.pid ]; do sleep 0.1; done; ulimit -l 64
setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock bash /run/serve"""


@dataclass(frozen=True)
class Fault:
    """What is done to the second guest before the cell, or once its ranks run; `spoilt` guests are booted again."""

    name: str
    outcome: str
    signature: str = ""
    before: str = ""
    after: str = ""
    during: Callable[[Guest], object] | None = None
    spoilt: bool = False
    hca: str = "rxe0, netdev: eth0"
    ud: str = "ud_verbs, "
    env: str = ""
    workload: str = "sizes: [8, 64K], iterations: 5"


FAULTS = (
    Fault("no-gid", "transport_unavailable", "no-transport@ucx", env="UCX_IB_GID_INDEX: 7"),
    Fault("wrong-hca", "transport_unavailable", "no-transport@ucx", env='UCX_NET_DEVICES: "rxe9:1"'),
    Fault("no-ud", "transport_unavailable", "no-transport@ucx", ud=""),
    Fault("no-carrier", "transport_unavailable", "no-transport@ucx", env='UCX_NET_DEVICES: "rxe1:1"',
          before=NO_CARRIER, after="rdma link del rxe1; ip link del lab0"),
    Fault("memory-lock", "out_of_memory", "Cannot-allocate-memory@ibv_reg_mr", before=LOCKED, spoilt=True),
    Fault("blocked", "network_failure", "unhandled-timeout@ucx", workload=LONG,
          during=lambda guest: guest.run(BLOCKED), after="tc qdisc del dev eth0 root"),
    Fault("cgroup", "out_of_memory", "oom-kill@kernel", workload=LARGE, before=IN_CGROUP, spoilt=True),
    # A node without memory answers nobody while it looks for some: that comes before the kernel kills a rank.
    Fault("node-memory", "network_failure", "lost@ssh", workload="sizes: 512M, iterations: 1", spoilt=True),
    Fault("panic", "network_failure", "lost@ssh", workload=LONG, during=lambda guest: guest.sysrq("c")),
    Fault("reboot", "network_failure", "lost@ssh", workload=LONG, during=lambda guest: guest.sysrq("b")),
    Fault("power-cut", "network_failure", "lost@ssh", workload=LONG, during=lambda guest: guest.send(signal.SIGKILL)),
    Fault("frozen", "network_failure", "lost@ssh", workload=LONG, during=lambda guest: guest.send(signal.SIGSTOP)),
    # On one link these harm nothing: both GIDs reach the peer, the MTU is negotiated, and lost packets are sent again.
    Fault("gid-ipv6", "passed", env="UCX_IB_GID_INDEX: 0"),
    Fault("mtu", "passed", before="ip link set eth0 mtu 9000", after="ip link set eth0 mtu 1500"),
    Fault("loss", "passed", before="tc qdisc add dev eth0 root netem loss 5%", after="tc qdisc del dev eth0 root"),
    Fault("delay", "passed", before="tc qdisc add dev eth0 root netem delay 20ms", after="tc qdisc del dev eth0 root"),
    Fault("clock", "passed", before="date -s '+1 hour'", after="date -s '-1 hour'"),
)  # fmt: skip


@pytest.fixture
def second(guests: Lab) -> Iterator[Guest]:
    """The guest to which it happens; a new one takes its place where it is gone."""
    yield guests.guests[-1]
    guests.repair()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_judged(fault: Fault, second: Guest, cells: Cells, guests: Lab) -> None:
    matrix = HEAD % (fault.hca, fault.ud, fault.env, fault.workload)
    if fault.before:
        second.run(fault.before)
    with contextlib.ExitStack() as stack:
        if fault.after:
            stack.callback(second.run, fault.after)
        if fault.spoilt:
            stack.callback(second.end)
        if fault.during:
            meanwhile = threading.Thread(target=_once_it_runs, args=(second, fault.during), daemon=True)
            meanwhile.start()
        (cell,) = cells(matrix).values()
    assert (cell["outcome"], cell.get("signature", "")) == (fault.outcome, fault.signature)


def _once_it_runs(guest: Guest, what: Callable[[Guest], object]) -> None:
    while True:
        with contextlib.suppress(RuntimeError):
            guest.run("until pgrep -f '[a]llreduce.py' >/dev/null; do sleep 0.5; done; sleep 3", 100)
            break
    what(guest)
