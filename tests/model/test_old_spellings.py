"""Extension classes of the version before override and use old names of attributes."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_hetgpu.extensions.inventories.base import HostListing, ListedHost, SkippedEntry
from pytest_hetgpu.extensions.registry import FAMILIES
from pytest_hetgpu.extensions.runtimes.base import CommandResult, RemoteNode, SshServer, Walltime
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.frames import Crash
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.extensions.transports.base import Rendering, Transport
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Command
from pytest_hetgpu.model.old_spellings import Renamed
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Remote(RemoteNode):
    """A node as an extension of the version before wrote it; what it does not need is left out."""

    folder = "/tmp/node"
    uid = 0
    given = "host7"

    def __init__(self) -> None:
        self.told = {"waited": "3 s"}

    def ask(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        return CommandResult(0, " ".join(argv).encode(), b"")

    def open_door(self, authorized_key: str, environment: Mapping[str, str]) -> SshServer:
        return SshServer(22, authorized_key, "root")

    def door_log(self) -> tuple[str, ...]:
        return ("refused",)

    def run(self, command: Command, **_: Any) -> RunResult:
        raise NotImplementedError

    def absent(self, paths: Sequence[str]) -> tuple[str, ...]:
        return ()

    def interfaces(self) -> tuple[str, ...]:
        return ()

    def host(self) -> Any:
        raise NotImplementedError

    def key(self) -> str:
        return ""

    def put(self, files: Mapping[str, bytes]) -> None:
        return

    def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
        return {}

    def sweep(self) -> tuple[str, ...]:
        return ()

    def lost(self) -> str | None:
        return None

    def close(self) -> None:
        return


class Lent(Remote):
    """A subclass that calls the method above it under its old name."""

    def ask(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
        return super().ask(("sudo", *argv))


def test_a_node_of_before_is_one_of_today() -> None:
    node = Remote()  # type: ignore[abstract]
    assert node.exec(["ls", "-l"]).stdout == b"ls -l"
    assert node.start_sshd("key", {}).host_key == "key"
    assert node.sshd_log() == ("refused",)
    assert (node.allocated_host, node.provision_facts) == ("host7", {"waited": "3 s"})
    node.term = Walltime(0.0, 60.0)
    assert node.walltime == node.term == Walltime(0.0, 60.0)
    lent = Lent()  # type: ignore[abstract]
    assert lent.exec(["ls"]).stdout == b"sudo ls"


def test_a_node_of_today_has_the_old_names() -> None:
    class Today(RemoteNode):
        """Only what is asked for."""

        def exec(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0) -> CommandResult:
            return CommandResult(len(argv), b"", b"")

    Today.__abstractmethods__ = frozenset()
    node = Today()  # type: ignore[abstract]
    assert node.ask(["a", "b"]).returncode == 2
    assert (node.given, node.told, node.term) == ("", {}, None)


def test_rules_take_old_keywords() -> None:
    old = MatchRule("frobd: retry ", Kind.ERROR, "retry@frobd", weight=Priority.SYMPTOM, certain=False)
    assert old == MatchRule("frobd: retry ", Kind.ERROR, "retry@frobd", Priority.SYMPTOM, fatal=False)
    assert (old.weight, old.certain, old._replace(fatal=True).certain) == (Priority.SYMPTOM, False, True)
    assert Priority["ENDING"] is Priority.EXIT


def test_matches_take_old_keywords() -> None:
    signature = Signature(Kind.ERROR, "key", "line", 1)
    old = FailureMatch(signature, weight=Priority.LIMIT, certain=False)
    assert old == FailureMatch(signature, Priority.LIMIT, fatal=False)
    assert (old.weight, replace(old, fatal=True).certain) == (Priority.LIMIT, True)


class Frobd(RuleParser):
    """A parser that overrides the old name of `build_match`, and calls the one above it."""

    rules = (MatchRule("frobd: lost", Kind.NETWORK_FAILURE, "lost@frobd"),)

    def reading(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        found: FailureMatch = super().reading(rule, groups, line)
        return replace(found, fatal=False)


def test_a_parser_of_before_makes_its_own_matches() -> None:
    parser = Frobd()
    parser.feed(LogLine("frobd: lost node7", 1))
    (match,) = parser.finish()
    assert (match.signature.key, match.fatal) == ("lost@frobd", False)
    crash = Crash(None, LogLine("a line", 1))
    assert crash.reading() == crash.build_match()


class Program(Workload):
    """A workload of before, with a program that is not ours."""

    operation = "frob"

    def program(self) -> tuple[str, ...]:
        return ()

    def points(self) -> tuple[MessagePoint, ...]:
        return ()

    def foreign(self, ranks: int) -> ExternalProgram | None:
        return ExternalProgram(("frob",), "command", ranks=ranks) if ranks > 1 else super().foreign(ranks)


def test_a_workload_of_before_has_its_program() -> None:
    work = Program(Program.Settings())
    found = work.external(4)
    assert found is not None
    assert found.ranks == 4
    assert work.external(1) is None
    assert Path(found.argv[0]).name == "frob"


class Net(Transport):
    """A transport of before: it says so under old names what it pins, owes and reads."""

    vendors = ("openmpi",)
    pin = "btl_frob_if_include"

    def render(self, node: Any, stack: Any) -> Rendering:
        return Rendering({})

    @staticmethod
    def reader() -> Any:
        return "parser"

    def components(self) -> Any:
        return ()


def test_a_transport_of_before_is_one_of_today() -> None:
    net = Net(Net.Settings())  # type: ignore[abstract]
    assert net.interface_setting == "btl_frob_if_include"
    assert net.parser() == net.reader() == "parser"
    assert net.rival == net.exclusion_setting


def test_dataclasses_take_old_keywords() -> None:
    host = ListedHost("node7")
    old = HostListing(found=(host,), left=(SkippedEntry("node8", "down"),))  # type: ignore[call-arg]
    assert old == HostListing((host,), (SkippedEntry("node8", "down"),))
    assert (old.found, old.left) == (old.hosts, old.skipped)
    result = BenchmarkResult(complaints=("a row without a head",), unsaid="# all done")  # type: ignore[call-arg]
    assert result == BenchmarkResult(warnings=("a row without a head",), missing_success="# all done")
    assert replace(result, warnings=()).complaints == ()


def test_each_old_name_stands_for_one_that_exists() -> None:
    for family in FAMILIES:
        importlib.import_module(f"pytest_hetgpu.extensions.{family}.base")
    classes = {
        value
        for name, module in list(sys.modules.items())
        if name.startswith("pytest_hetgpu.")
        for value in vars(module).values()
        if isinstance(value, type)
    }
    renamed = {(cls, one.now) for cls in classes for one in vars(cls).values() if isinstance(one, Renamed)}
    assert len(renamed) > 30
    missing = [f"{cls.__name__}.{now}" for cls, now in renamed if not _has(cls, now)]
    assert missing == []


def _has(cls: type, name: str) -> bool:
    """Instance attributes count, too: those that a constructor sets."""
    source = inspect.getsource(cls)
    return (
        hasattr(cls, name)
        or any(name in vars(base).get("__annotations__", {}) for base in cls.__mro__)
        or (f"self.{name} = " in source)
    )


def test_an_old_name_warns_with_the_new_one() -> None:
    work = Program(Program.Settings())
    with pytest.warns(DeprecationWarning, match=r"^Program\.over is with_backend now$"):
        assert work.over == work.with_backend
