"""Verdicts on a user's own programs: a failure on any rank counts, and a success is counted per rank."""

from __future__ import annotations

import pytest

from tests.real.test_real_foreign import Foreign, foreign

__all__ = ["foreign"]
pytestmark = [pytest.mark.real]

PROGRAM = """\
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
mean() { [ "$rank" = "$1" ]; }
case $1 in
  exit) mean 1 && { echo "BAD DATA in 17 elements"; exit 1; }; sleep 0.3 ;;
  signal) echo "BAD DATA"; sleep 0.3; mean 1 && kill -SEGV $$ ;;
  network) cat $2/network.log; echo BAD DATA; exit 1 ;;
  crash) echo GOOD; sleep 0.3; mean 1 && kill -SEGV $$ ;;
  json) mean 0 && echo '{"ok": true}' || echo '{"ok": false}' ;;
  plan) echo 1..4; for i in 1 2 3 4; do { mean 0 || [ $i -lt 3 ]; } && echo "ok $i - t$i"; done ;;
  noplan) echo "ok 1 - a" ;;
  good) mean 0 && echo GOOD ;;
  line) head -c 40000 /dev/zero | tr '\\0' x; echo " BAD DATA"; echo GOOD ;;
  overwritten) printf 'BAD DATA\\rfine\\nGOOD\\n' ;;
  middle)
    echo GOOD; yes yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy | head -20000
    mean 1 && echo "BAD DATA"; yes yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy | head -30000; echo end ;;
  silent-middle) echo GOOD; yes yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy | head -50000; echo end ;;
  quoted)
    echo GOOD
    echo "prterun noticed that process rank 0 with PID 1 on node h exited on signal 11 (Segmentation fault)." ;;
  suite-error)
    echo '<testsuite tests="4"><testcase name="a"/><error message="no"/></testsuite>' >$2/e-$rank.xml ;;
esac
true
"""
NETWORK = (
    "[h][[1,0],0][btl_tcp_endpoint.c:667:mca_btl_tcp_endpoint_complete_connect] connect() to 10.0.0.2:1024 failed: "
    "No route to host (113)\n"
)
CELLS = {
    # The pattern `failure` decides, whatever else happened, and meets no expectation of something else.
    "exit": ("success: GOOD, failure: BAD DATA", "wrong_result", "changed"),
    "signal": ("success: GOOD, failure: BAD DATA", "wrong_result", "changed"),
    "network": ("success: GOOD, failure: BAD DATA", "wrong_result", "new"),
    "crash": ("success: GOOD", "crash", "changed"),
    "json": ("json_success: ok", "wrong_result", "new"),
    "plan": ("tests: tap", "wrong_result", "new"),
    "noplan": ("tests: tap", "wrong_result", "new"),
    "good": ("success: GOOD", "passed", "ok"),
    "each": ("success: GOOD, proof: each", "wrong_result", "new"),
    "line": ("success: GOOD, failure: BAD DATA", "wrong_result", "new"),
    "overwritten": ("success: GOOD, failure: BAD DATA", "wrong_result", "new"),
    "middle": ("success: GOOD, failure: BAD DATA", "wrong_result", "new"),
    "quoted": ("success: GOOD", "passed", "ok"),
    "suite-error": ('junit: "FOLDER/e-{rank}.xml"', "wrong_result", "new"),
    "stale": ('junit: "FOLDER/stale-{rank}.xml"', "wrong_result", "new"),
}
EXPECT = """\
expect:
  - {where: {workload: exit}, outcome: error, signature: exit@1, reason: known}
  - {where: {workload: signal}, outcome: crash, signature: SIGSEGV, reason: known}
  - {where: {workload: crash}, outcome: crash, signature: "SIGSEGV@libuct.so!uct_tcp_ep_am_short", reason: known}
"""


@pytest.mark.parametrize("stack", ["openmpi-5", "openmpi-4", "mpich"])
def test_verdicts_on_own_programs(
    foreign: Foreign, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    """Each program is a way in which a run seems to have passed, or to have failed as expected, and has not."""
    folder = pytester.path
    program = folder / "program.sh"
    program.write_text(PROGRAM)
    (folder / "network.log").write_text(NETWORK)
    (folder / "old.xml").write_text('<testsuite><testcase name="old"/></testsuite>')
    for rank in range(2):
        (folder / f"stale-{rank}.xml").symlink_to("old.xml")
    monkeypatch.setenv("HETGPU_OUTPUT", "1M")
    monkeypatch.setenv("HETGPU_RETRIES", "1")
    workloads = "".join(
        f"    {name}: {{kind: command, mpi: false, argv: [/bin/sh, {program}, {'good' if name == 'each' else name}, "
        f"{folder}], {keys.replace('FOLDER', str(folder))}}}\n"
        for name, (keys, _, _) in CELLS.items()
    )
    axes = f"  transport: {{auto: {{}}}}\n  stack: [{stack}]\n  workload:\n{workloads}{EXPECT}"
    cells = foreign(axes, stack, code=1)
    told = by_workload(cells, stack)
    found = {name: (cell["outcome"], cell["verdict"]) for name, cell in told.items()}
    assert found == {name: (outcome, verdict) for name, (_, outcome, verdict) in CELLS.items()}
    assert told["good"]["notes"] == "success was shown by 1 of 2 ranks"


def by_workload(cells: dict[str, dict[str, str]], stack: str) -> dict[str, dict[str, str]]:
    """Return the cells by the name of their workload."""
    return {name.removeprefix("two-auto-").removesuffix(f"-{stack}"): cell for name, cell in cells.items()}
