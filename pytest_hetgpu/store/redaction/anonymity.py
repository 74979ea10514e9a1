"""Stand-ins for names of machines and people (`--hetgpu-anonymise`): in all reports, each name's always the same.

Known are the hosts and users that a run itself tells: who started it, where its nodes are, how they are reached, and
whom its ranks said they ran on. Addresses, and users in home paths, are known by their form. Names that the matrix
gives (cells, placements, hardware) stay, and so does what is the same everywhere: localhost, loopback, root, `node0`.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store.cells import CellRecord, RunRecord
from pytest_hetgpu.store.encode import RecordError
from pytest_hetgpu.store.files import READABLE
from pytest_hetgpu.store.folder import RunFolder, read_job
from pytest_hetgpu.store.redaction import redact

MARKER = "anonymous"
"""An empty file in a run's folder: its reports are built without names, whoever builds them."""
_HEAD = 64 << 10
_HELLO = re.compile(rb'"host":"([^"\\]{1,200})"')
_EVERYWHERE = re.compile(r"(?:localhost|node\d+|launcher|root|127\..*|0\.0\.0\.0|::1?|\d+)?")
_HOME = re.compile(r"(?P<where>/home/|/Users/)(?P<name>[\w.-]+)")
_IPV4 = re.compile(r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.]*\w)")
_GROUP = "[0-9A-Fa-f]"
_IPV6 = re.compile(
    rf"(?<![\w:.])(?={_GROUP}{{0,4}}(?::{_GROUP}{{1,4}}){{0,7}}::|(?:{_GROUP}{{1,4}}:){{7}})"
    rf"(?:{_GROUP}{{0,4}}:){{2,7}}{_GROUP}{{1,4}}(?![\w:])"
)
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")


class Names:
    """Gives every name a stand-in: `host-A`, `user-A`, `address-1`.

    Known hosts and users have theirs by the alphabet, so that reports and bundles of one run agree; what is known by
    its form only, in the order in which it is met.
    """

    def __init__(self, hosts: Iterable[str], users: Iterable[str], spared: Collection[str] = ()) -> None:
        self._given: dict[str, str] = {}
        self._spared = frozenset(spared)
        self._hosts, self._users = self._one_of("host", hosts), self._one_of("user", users)

    def __call__(self, text: str) -> str:
        """The text with stand-ins."""
        text = _HOME.sub(self._home, text)
        if self._hosts:
            text = self._hosts.sub(lambda found: self._stand_in("host", found["name"]), text)
        if self._users:
            text = self._users.sub(lambda found: self._stand_in("user", found["name"]), text)
        for pattern in (_MAC, _IPV6, _IPV4):
            text = pattern.sub(self._address, text)
        return text

    def _one_of(self, kind: str, names: Iterable[str]) -> re.Pattern[str] | None:
        """One pattern for all names, with the domains behind them; None where there is none."""
        short = {name.partition(".")[0] if not _IPV4.fullmatch(name) else "" for name in names}
        wanted = sorted(name for name in short - self._spared if not _EVERYWHERE.fullmatch(name))
        if not wanted:
            return None
        for name in wanted:
            self._stand_in(kind, name)
        wanted.sort(key=len, reverse=True)
        return re.compile(rf"(?<![\w.-])(?P<name>{'|'.join(map(re.escape, wanted))})(?:\.[A-Za-z][\w-]*)*(?![\w-])")

    def _stand_in(self, kind: str, name: str) -> str:
        if name in self._given.values():
            return name
        key = f"{kind} {name}"
        if key not in self._given:
            number = sum(given.startswith(f"{kind}-") for given in self._given.values())
            self._given[key] = f"{kind}-{number + 1 if kind == 'address' else _letters(number)}"
        return self._given[key]

    def _home(self, found: re.Match[str]) -> str:
        return f"{found['where']}{self._stand_in('user', found['name'])}"

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        # `ab::cd` may be a name of C++'s.
        if _EVERYWHERE.fullmatch(text) or (":" in text and (len(text) < 6 or not re.search(r"\d", text))):
            return text
        return self._stand_in("address", text.lower())


def _letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("A") + number % 26)


@contextmanager
def without_names(record: RunRecord, folder: RunFolder) -> Iterator[None]:
    """All that is redacted meanwhile has stand-ins for the names of this run."""
    hosts = {session.host for session in record.sessions}
    users = {getpass.getuser()}
    spared = {value for cell in record.cells for value in (cell.matrix, *cell.axes.values())}
    for job in _jobs(record, folder):
        spared |= {node.hardware.name for node in job.all_nodes}
        for node in job.all_nodes:
            user, _, host = node.reach.engine.rpartition("://")[2].rpartition("@")
            hosts |= {node.host, host.partition("/")[0].partition(":")[0]}
            users |= {node.reach.user or "", user}
    for cell in record.cells:
        hosts |= set(_seen(cell, folder))
    with redact.standing_in(Names(filter(None, hosts), filter(None, users), spared)):
        yield


def _jobs(record: RunRecord, folder: RunFolder) -> Iterator[Job]:
    """A job of each placement."""
    seen = set()
    for cell in record.cells:
        placement = cell.matrix, cell.axes.get("placement")
        path = folder.job(cell.label)
        if placement in seen or not path.exists():
            continue
        try:
            yield read_job(path)
        except RecordError:
            continue
        seen.add(placement)


def _seen(cell: CellRecord, folder: RunFolder) -> Iterator[str]:
    """Hosts that a failed cell's output names: those of its signature, and what its ranks said of themselves."""
    signature = cell.outcome.signature
    yield from signature.hosts if signature else ()
    if cell.outcome.verdict in (Verdict.OK, Verdict.NOT_RUN):
        return
    try:
        with folder.log(cell.label).open("rb") as log:
            head = log.read(_HEAD)
    except OSError:
        return
    for host in dict.fromkeys(_HELLO.findall(head)):
        yield json.loads(b'"%b"' % host) if host.isascii() else ""


def kept(folder: Path) -> bool:
    """Whether a run's reports are to be without names."""
    return (folder / MARKER).exists()


def keep(folder: Path) -> None:
    """Has a run's reports built without names from now on."""
    (folder / MARKER).touch(mode=READABLE)
