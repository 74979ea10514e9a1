"""The transports of the main job on hosts that differ in release, user, IPv6, HOME, TMPDIR, cores: the same verdicts.

Six hosts of this machine and two of Debian 13 hold every pair of these (a covering array). The first two run a cell per
transport and stack on each push; the others, and all eight with `matrices/local.yaml`, are nightly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.real.hosts_here import CELLS, MATRIX, PLACEMENTS, Host, cells, host, lacks, told

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
NIGHTLY = pytest.mark.nightly(reason="one more host of six")
GOOD = ("ok", "known", "not_run")
Stacks = Callable[[str], Path]
Need = Callable[[str, str], None]

# More ranks than nodes: whether they are more than the cores decides the command line.
FOUR = """\
include:
  - {placement: {name: four-5, nodes: [ompi5, ompi5], ranks_per_node: 2}, transport: ob1-tcp, workload: send_recv}
  - {placement: {name: four-4, nodes: [ompi4, ompi4], ranks_per_node: 2}, transport: ob1-tcp, workload: send_recv}
"""
MORE = {"four-5-ob1-tcp-send_recv": "ok", "four-4-ob1-tcp-send_recv": "ok"}


class Kind(NamedTuple):
    """What a host has."""

    root: bool
    ipv6: bool
    home: bool
    room: bool
    cores: int

    def __str__(self) -> str:
        words = {"root": self.root, "ipv6": self.ipv6, "home": self.home, "room": self.room}
        return "-".join((*(name if has else f"no_{name}" for name, has in words.items()), f"{self.cores}cores"))


KINDS = (
    Kind(root=False, ipv6=False, home=False, room=True, cores=64),
    Kind(root=False, ipv6=False, home=True, room=False, cores=2),
    Kind(root=True, ipv6=True, home=True, room=True, cores=2),
    Kind(root=False, ipv6=True, home=False, room=False, cores=2),
    Kind(root=True, ipv6=False, home=True, room=False, cores=64),
    Kind(root=True, ipv6=True, home=False, room=True, cores=64),
)
PLAIN = KINDS[2]
# In containers of Debian 13. The two differ in everything.
TRIXIE_KINDS = (PLAIN, Kind(root=False, ipv6=False, home=False, room=False, cores=64))
# Every host has all that the main job needs, so only the matrix leaves cells out.
LEFT_OUT = "excluded: ob1 is a layer of Open MPI"


@pytest.fixture
def ready(tmp_path: Path, stacks_here: Stacks, lacking: Need, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stacks, the matrix, and what reports other cores."""
    if why := lacks("cc"):
        lacking("netns", why)
    (tmp_path / "stacks").mkdir()
    for name in PLACEMENTS:
        (tmp_path / "stacks" / name).symlink_to(stacks_here(name).resolve())
    source, made = Path(__file__).with_name("cores.c"), tmp_path / "cores.so"
    subprocess.run(("cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(source)), check=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "hosts.yaml").write_text(MATRIX + FOUR)
    monkeypatch.setenv("HETGPU_STACKS", str(tmp_path / "stacks"))
    monkeypatch.setenv("HETGPU_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("HETGPU_LEDGERS", str(tmp_path / "ledgers"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(kind: Kind, there: Host, folder: Path, *argv: str) -> tuple[str, ...]:
    """A command as it is started on such a host: in its mounts, with its variables, as its user."""
    full = f"mount -t tmpfs -o size=64k,mode=1777 full {folder}/full; cat /dev/zero >{folder}/full/all 2>/dev/null; "
    # In a user namespace nobody sees who uses a segment, so that all stay: the host has shared memory of its own.
    mounts = "mount -t tmpfs -o mode=1777 shm /dev/shm; " + ("" if kind.room else full)
    # A user namespace: no file need be opened to another user for its programs to be run by one.
    user = () if kind.root else ("unshare", "--user", "--map-user=65534", "--map-group=65534")
    return (
        *(*there.inside, "unshare", "-m", "sh", "-c", mounts + 'exec "$@"', "-"),
        *(*user, *environment(kind, folder), *argv),
    )


def environment(kind: Kind, folder: Path) -> tuple[str, ...]:
    """The command that sets the variables of such a host."""
    variables = ["HETGPU_CORES=" + str(kind.cores), f"LD_PRELOAD={folder}/cores.so", "HWLOC_THISSYSTEM=0"]
    variables += [f"HWLOC_SYNTHETIC=pack:1 core:{kind.cores} pu:1"]
    variables += [] if kind.room else [f"TMPDIR={folder}/full"]
    return "env", *(() if kind.home else ("-u", "HOME")), *variables


def ran(kind: Kind, folder: Path, matrix: str, reports: str = "reports") -> dict[str, dict[str, str]]:
    """What becomes of a matrix on a host."""
    with host("kind") as there:
        there.ethernet()
        if not kind.ipv6:
            there.without_ipv6()
        # Four ranks that do not yield, on two cores that say they are 64, take up to 17 s.
        options = ("--hetgpu-matrix", matrix, "--hetgpu-reports", reports, "--hetgpu-timeout", "60")
        argv = started(kind, there, folder, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1800)
    assert (folder / reports / "latest").exists(), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return cells(folder / reports)


def all_pairs() -> set[tuple[int, bool | int, int, bool | int]]:
    """Every pair of values that the hosts hold, the last of them the release of Debian."""
    hosts = [*((*kind, 12) for kind in KINDS), *((*kind, 13) for kind in TRIXIE_KINDS)]
    return {(a, one[a], b, one[b]) for one in hosts for a in range(6) for b in range(a)}


def test_every_pair_of_differences_is_among_the_hosts() -> None:
    assert len(all_pairs()) == 15 * 4


@pytest.mark.parametrize(
    "kind", [*KINDS[:2], *(pytest.param(kind, marks=NIGHTLY) for kind in KINDS[2:])], ids=list(map(str, KINDS))
)
def test_a_cell_of_every_transport_and_stack(kind: Kind, ready: Path) -> None:
    found = ran(kind, ready, "hosts.yaml")
    assert {name: cell["verdict"] for name, cell in found.items()} == {**CELLS, **MORE}


MAIN: dict[Kind, dict[str, dict[str, str]]] = {}


def main_job(kind: Kind, folder: Path) -> dict[str, dict[str, str]]:
    """What becomes of the main job on a host, which is run once."""
    if kind not in MAIN:
        MAIN[kind] = ran(kind, folder, str(ROOT / "matrices" / "local.yaml"), str(kind))
    return MAIN[kind]


@pytest.mark.nightly(reason="takes 3 minutes per host")
@pytest.mark.parametrize("kind", [PLAIN, *(kind for kind in KINDS if kind != PLAIN)], ids=str)
def test_the_main_job(kind: Kind, ready: Path) -> None:
    same(main_job(kind, ready), main_job(PLAIN, ready))


def same(found: dict[str, dict[str, str]], plain: dict[str, dict[str, str]]) -> None:
    """Every cell has the verdict of the plain host, none of them bad; what is not run, the matrix leaves out."""
    wrong = {name: (cell["verdict"], cell["why"]) for name, cell in found.items() if cell["verdict"] not in GOOD}
    assert wrong == {}
    left_out = {name: cell["why"] for name, cell in found.items() if cell["verdict"] == "not_run"}
    assert {name: why for name, why in left_out.items() if why != LEFT_OUT} == {}
    assert [name for name in {**plain, **found} if verdict(plain, name) != verdict(found, name)] == []


def verdict(found: dict[str, dict[str, str]], name: str) -> str:
    """The verdict of a cell, "" for one that is not there."""
    return found.get(name, {}).get("verdict", "")


BOOTSTRAP = """\
set -e
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
mkdir /here && cd /here
tar -C /checkout --exclude=./.venv --exclude=./.stacks --exclude=./.git --exclude=./reports -cf - . | tar -xf -
python3 bootstrap.py run --collect-only -q
"""
START = """\
[ -z "$TMPDIR" ] || cat /dev/zero >"$TMPDIR/all" 2>/dev/null
exec "$@"
"""


@pytest.fixture(scope="module")
def trixie(engine: None) -> Iterator[str]:
    """The image of a bare Debian 13 after README's command: no ssh, no compiler, no iproute2."""
    name = f"hetgpu-test-{os.getpid()}"
    proxies = [f"-e{one}" for one in os.environ if one.lower().endswith("_proxy")]
    made = ("run", "--name", name, "--network", "host", "-v", f"{ROOT}:/checkout:ro", *proxies)
    certificates = "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"
    try:
        told("docker", *made, "-e", certificates, "hetgpu-base:trixie", "bash", "-c", BOOTSTRAP, seconds=1200)
        told("docker", "commit", name, name, seconds=300)
        yield name
    finally:
        for words in (("rm", "-f", name), ("rmi", "-f", name)):
            subprocess.run(("docker", *words), capture_output=True, check=False)


@pytest.mark.nightly(reason="downloads three stacks")
@pytest.mark.parametrize("kind", TRIXIE_KINDS, ids=str)
def test_a_bare_debian_13(kind: Kind, trixie: str, ready: Path) -> None:
    (ready / "reports").mkdir()
    for folder in (ready, ready / "reports"):
        folder.chmod(0o777)
    # MPICH reads the memory of other ranks (process_vm_readv), which containers may not without SYS_PTRACE.
    options = ["--rm", "--cap-add", "SYS_PTRACE", "-v", f"{ready}:/hosts", "-w", "/hosts"]
    off = [f"net.ipv6.conf.{name}.disable_ipv6=1" for name in ("all", "default")]
    options += ["--network", "host"] if kind.ipv6 else [f"--sysctl={one}" for one in off]
    options += [] if kind.room else ["--tmpfs", "/hosts/full:size=64k,mode=1777", "-e", "TMPDIR=/hosts/full"]
    user = () if kind.root else ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    places = ("HETGPU_STACKS=/here/.stacks", "HETGPU_LEASES=/hosts/leases", "HETGPU_LEDGERS=/hosts/ledgers")
    pytest_there = ("/here/.venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider", "--hetgpu-timeout", "60")
    argv = ("docker", "run", *options, trixie, "bash", "-c", START, "-", *user, *environment(kind, Path("/hosts")))
    command = (*argv, *places, *pytest_there, "--hetgpu-matrix", "/here/matrices/local.yaml")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    assert (ready / "reports/latest").exists(), done.stdout[-4000:] + done.stderr[-4000:]
    same(cells(ready / "reports"), main_job(PLAIN, ready))
