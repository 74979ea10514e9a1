"""Open MPI's launchers and their runtime: jobs that do not start, are lost, or are stopped."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.lines import parse_line
from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.order import by_priority
from pytest_hetgpu.extensions.signatures.engine.rows import shipped_rows
from pytest_hetgpu.model.failure import Signature


def matches(parser: str, text: str) -> list[FailureMatch]:
    found = find("signatures", parser, LogParser)()  # type: ignore[type-abstract]
    for number, line in enumerate(text.split("\n"), 1):
        found.feed(parse_line(line, number))
    return list(found.finish())


def parse_all(parser: str, text: str) -> list[Signature]:
    return list(by_priority(matches(parser, text)))


def told(parser: str, text: str) -> str:
    (found,) = parse_all(parser, text)
    return f"{found.kind.value} {found.key}"


@pytest.mark.parametrize(
    ("text", "read_as", "quoted"),
    [
        ("There are not enough slots available in the system to satisfy the 16\nslots", "no-slots@mpirun", 1),
        ("The specified binding policy is not recognized:\n\n  Policy: foo", "bad-binding@mpirun", 1),
        ("The specified mapby directive is not recognized:\n\n  Directive: foo", "bad-mapping@mpirun", 1),
        ("The mapping request contains an unrecognized modifier:\n\n  Request: foo", "bad-mapping@mpirun", 1),
        ("A request was made to bind to that would result in binding more\nprocesses than cpus", "overload@mpirun", 1),
        ("While computing bindings, we found no available cpus on\nthe following node:\n\n  Node:  node1", "no-cpus@mpirun", 1),
        ("Open RTE detected a bad parameter in the hostfile:\n    hf\nThe slots parameter is less than 0:\n    slots=-1", "bad-hostfile@mpirun", 3),
        ("Open RTE was unable to open the hostfile:\n    nosuch", "unable-to-open-the-hostfile@mpirun", 1),
        ('mpirun: Error: unknown option "--nosuch"\nType', "bad-option@mpirun", 1),
        ("prterun was unable to launch the specified application as it could not\naccess an executable:\n\n   Executable: ./heat3d\n   Node: vm", "no-program@heat3d", 4),
        ("mpirun was unable to find the specified executable file, and therefore\ndid not\nrank 0\nNOTE\n a\n b\n\nNode:       vm\nExecutable: ./heat3d", "no-program@heat3d", 9),
        ("mpirun was unable to launch the specified application as it could not\nchange to the specified working directory:\n\nWorking directory: /scratch/run42\nNode: n3", "no-directory@run42", 4),
        ("mpirun was unable to launch the specified application as it could not find\nthe specified working directory:\n\nWorking directory: /scratch/run42", "no-directory@run42", 4),
        ("mpirun has detected an attempt to run as root.", "run-as-root@mpirun", 1),
        ("ORTE was unable to reliably start one or more daemons.", "no-daemon@mpirun", 1),
        ("An ORTE daemon has unexpectedly failed after launch and before\ncommunicating", "no-daemon@mpirun", 1),
        ("A daemon died unexpectedly with status 127 while attempting\nto launch", "no-daemon@mpirun", 1),
        ('The application appears to have been direct launched using "srun",\nbut OMPI was not built', "no-pmi@srun", 1),
    ],
)  # fmt: skip
def test_launch_failures(text: str, read_as: str, quoted: int) -> None:
    (found,) = parse_all("openmpi_launch", text)
    assert f"{found.kind.value} {found.key}" == f"launch_failure {read_as}"
    assert found.line == quoted


def test_every_text_that_names_itself_has_a_key_of_its_own() -> None:
    rows = shipped_rows("openmpi_launch").rows
    texts = [trigger for row in rows if row.fields.get("key") == "{trigger}@mpirun" for trigger in row.triggers]
    keys = [told("openmpi_launch", f"prterun {text} 17 of 23") for text in texts]
    assert all(key.startswith("launch_failure ") and len(key) > 30 for key in keys)
    assert len(set(keys)) == len(texts)


@pytest.mark.parametrize(
    ("text", "read_as", "hosts"),
    [
        ("ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node node1\n  Remote daemon: [[1,0],2] on node node3", "network_failure lost@daemon", ("node3",)),
        ("A daemon failed to report back after being spawned. This could\nbe\n\n  Local host:    node1\n  Remote host:   node2\n  Daemon exit status: 255", "network_failure lost@daemon", ("node2",)),
        ("PRTE has lost communication with a remote daemon.", "network_failure lost@daemon", ()),
        ("mpirun has detected that a required daemon terminated during execution", "network_failure lost@daemon", ()),
        ("The user-provided time limit for job execution has been reached:\n\n  Timeout: 40 seconds", "timeout time-limit@mpirun", ()),
        ("Abort is in progress...hit ctrl-c again to forcibly terminate", "timeout interrupted@mpirun", ()),
        ("mpirun: abort is already in progress...hit ctrl-c again to forcibly terminate", "timeout interrupted@mpirun", ()),
    ],
)  # fmt: skip
def test_jobs_that_were_lost_or_stopped(text: str, read_as: str, hosts: tuple[str, ...]) -> None:
    (found,) = parse_all("openmpi_launch", text)
    assert (f"{found.kind.value} {found.key}", found.hosts) == (read_as, hosts)


def test_a_time_limit_explains_less_than_anything_else() -> None:
    (found,) = matches("openmpi_launch", "The user-provided time limit for job execution has been reached:")
    assert (found.priority, found.fatal) == (Priority.LIMIT, True)


@pytest.mark.parametrize(
    "text",
    [
        "WARNING: a request was made to bind a process. While the system",
        "The requested number of processes exceeds the allocated\nnumber of slots:",
        "There are not enough samples",
        "Error: unknown reason",
        "A deprecated MCA variable value was specified in the environment or",
        "[vm:1] 3 more processes have sent help message help-mpi-api.txt / mpi-abort",
        '[vm:1] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages',
    ],
)
def test_no_launch_failures(text: str) -> None:
    assert matches("openmpi_launch", text) == []


FORCED = "[[18631,0],0] FORCE-TERMINATE AT {} - error ../orte/mca/{}(352)"


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        (FORCED.format("Data unpack would read past end of buffer:-26", "grpcomm/direct/grpcomm_direct.c"), "launch_failure Data-unpack-would-read-past-end-of-buffer@orte", Priority.RELAYED),
        ("It looks like orte_init failed for some reason; your parallel process is\nlikely\n\n  orte_ess_init failed\n  --> Returned value Not found (-13)", "launch_failure failed@orte_init!orte_ess_init", Priority.RELAYED),
        ("[a:1] CANNOT CREATE FIFO /run/t/x: errno 28", "launch_failure no-space@session-dir", Priority.CAUSE),
        ("[a:1] CANNOT CREATE FIFO /run/t/x: errno 13", "launch_failure no-fifo@session-dir", Priority.CAUSE),
        ("A call to mkdir was unable to create the desired directory:\n\n  Directory: /x\n  Error:     Permission denied", "launch_failure no-directory@session-dir", Priority.CAUSE),
        ("[a:1] [[1,0],0] ORTE_ERROR_LOG: Not found in file ess_hnp_module.c at line 320", "launch_failure Not-found@orte", Priority.SYMPTOM),
    ],
)  # fmt: skip
def test_the_runtime_below(text: str, read_as: str, priority: Priority) -> None:
    (found,) = matches("pmix", text)
    assert f"{found.signature.kind.value} {found.signature.key}" == read_as
    assert found.priority is priority


@pytest.mark.parametrize(
    "text",
    [
        "[a:1] PMIX ERROR: PMIX_ERR_NOT_FOUND in file dstore_base.c at line 1567",
        "[a:1] PMIX ERROR: NOT-FOUND in file ../src/mca/common/dstore/dstore_base.c at line 2866",
        "[a:1] [[1,0],0] ORTE_ERROR_LOG: Out of resource in file orte/util/show_help.c at line 501",
        "It looks like MPI_INIT failed for some reason; your parallel process is",
    ],
)
def test_nothing_of_the_runtimes(text: str) -> None:
    assert matches("pmix", text) == []
