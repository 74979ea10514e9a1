"""Outcomes from output of nccl-tests, ucx_perftest, mpi4py.bench and any command."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.analysis.interpret_runs import PROOF, UCX, Judged, foreign, greetings, judged, names, record, sample
from tests.extensions.readers.nccl_text import banner, footer, header, row

__all__ = ["judged"]


GOOD = ("9.02", "0.00", "0.00", "0", "8.96", "0.00", "0.00", "0")
NCCL = foreign("nccl_tests", "all_reduce_perf", "-g", "1", memory="device", proof=False)
BOTH = (MessagePoint(8, "float32"), MessagePoint(8, "float32", "in"))


def test_what_mpi_uses_proves_nothing_of_a_library_beside_it(judged: Judged) -> None:
    text = greetings() + PROOF + banner() + header() + row(8, *GOOD) + footer()
    program = foreign("nccl_tests", "all_reduce_perf", layer="nccl")
    found = judged(text, program, [MessagePoint(8, "float32")])
    assert (found.transports, found.kind) == ((), Kind.UNKNOWN)


def test_nccl_tests(judged: Judged) -> None:
    text = greetings() + banner() + header() + row(8, *GOOD) + footer()
    found = judged(text, NCCL, BOTH)
    assert found.kind is Kind.PASSED
    assert found.facts["tool"] == "nccl-tests all_reduce_perf 2.19.6"
    assert (found.facts["memory"], found.facts["nccl"]) == ("device", "2.29.7")
    assert {"latency[8,float32]", "latency[8,float32,in]", "busbw[8,float32,in]"} <= set(names(found))


def test_one_process_with_two_gpus_shows_how_they_talk(judged: Judged) -> None:
    channel = "vm:1:7 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    table = banner() + header() + row(8, *GOOD) + footer()
    program = replace(NCCL, layer="nccl", proof=True)
    found = judged(greetings(1) + channel + table, program, BOTH, ranks=1, family="nccl")
    assert (found.kind, found.transports) == (Kind.PASSED, ("nccl/p2p",))
    silent = judged(greetings(1) + table, program, BOTH, ranks=1, family="nccl")
    assert silent.kind is Kind.UNKNOWN
    assert silent.why.startswith("nothing in the output proves which transport was used")


def test_na_is_unchecked_and_never_0(judged: Judged) -> None:
    unchecked = (*GOOD[:3], "N/A", *GOOD[4:7], "N/A")
    text = greetings() + banner(validation=0) + header() + row(8, *unchecked) + footer()
    found = judged(text, NCCL, BOTH)
    assert found.kind is Kind.UNKNOWN
    assert found.why.endswith("verified nothing at points 8,float32, 8,float32,in")


def test_single_rank_jobs_are_no_job_of_two(judged: Judged) -> None:
    alone = banner(1) + header() + row(8, *GOOD) + footer()
    found = judged(greetings() + alone + alone, NCCL, BOTH)
    assert found.kind is Kind.WRONG_RESULT
    assert found.why == "nccl-tests all_reduce_perf 2.19.6 measured 1 rank, so nothing moved; asked for were 2 ranks"
    assert any("2 single-rank jobs ran" in finding.why for finding in found.findings)
    assert not [name for name in names(found) if "bw" in name]


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (1, Kind.ERROR, "exit code 1: an internal error"),
        (2, Kind.ERROR, "exit code 2: a call to CUDA failed"),
        (3, Kind.ERROR, "exit code 3: a call to NCCL failed"),
        (4, Kind.TIMEOUT, "exit code 4: its own time limit was over (-T)"),
        (5, Kind.ERROR, "exit code 5: not implemented, or fewer GPUs than asked for"),
        (6, Kind.ERROR, "exit code 6: wrong usage"),
        (7, Kind.WRONG_RESULT, "exit code 7: wrong data, or slower than NCCL_TESTS_MIN_BW"),
    ],
)
def test_exit_codes_of_nccl_tests(judged: Judged, code: int, kind: Kind, said: str) -> None:
    found = judged(greetings() + banner() + header(), NCCL, BOTH, code=code)
    assert found.kind is kind
    assert any(said in finding.why for finding in found.findings)


def test_slower_than_it_was_told_to_be(judged: Judged) -> None:
    text = greetings() + banner() + header() + row(8, *GOOD) + footer(slow="FAILED")
    found = judged(text, NCCL, BOTH, code=7)
    assert found.kind is Kind.SLOW


def test_the_rank_that_the_launcher_blames_tells_more_than_its_own_code(judged: Judged) -> None:
    # PRRTE's words, and an exit code of the launcher's own.
    blamed = "   Process name: [prterun-vm-1@1,1]\n   Exit code:    4\n"
    rule = "-" * 74 + "\n"
    told = f"{rule}prterun detected that one or more processes exited with non-zero status,\n"
    told += f"thus causing the job to be terminated. The first process to do so was:\n\n{blamed}{rule}"
    found = judged(greetings() + banner() + header() + told, NCCL, BOTH, code=1)
    assert found.kind is Kind.TIMEOUT


def test_a_crash_is_worse_than_what_is_missing(judged: Judged) -> None:
    text = (
        greetings()
        + PROOF
        + sample("osu-5.3-latency-stopped")
        + (
            "[vm:00001] *** Process received signal ***\n[vm:00001] Signal: Segmentation fault (11)\n"
            "[vm:00001] Signal code: Invalid permissions (2)\n[vm:00001] Failing at address: 0x7f3e00000000\n"
            "[vm:00001] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f3e12345050]\n"
            "[vm:00001] [ 1] /opt/lib/libuct.so.0(uct_tcp_ep_am_short+0xa7)[0x7f3e22345050]\n"
            "[vm:00001] *** End of error message ***\n"
        )
    )
    found = judged(text, foreign("osu", "osu_latency"), [MessagePoint(8, "")], code=139)
    assert (found.kind, found.signature and found.signature.key) == (
        *(Kind.CRASH, "SIGSEGV@libuct.so!uct_tcp_ep_am_short"),
    )
    assert found.signature is not None
    # The rank reports the process id of its program.
    assert found.signature.ranks == (0,)


def test_a_run_that_was_stopped_says_nothing_by_its_code(judged: Judged) -> None:
    stopped = {"timed_out": True, "quiet": 0.5, "returncode": -15}
    text = greetings() + PROOF + sample("osu-5.3-latency-stopped")
    found = judged(text, foreign("osu", "osu_latency"), [MessagePoint(8, "")], run=stopped)
    assert found.kind is Kind.TIMEOUT


def test_wrong_usage_of_ucx_is_no_signal(judged: Judged) -> None:
    """Expect no signal: UCX's tools return -127, which is 129 and would be SIGHUP."""
    text = greetings(library="") + "/usr/bin/ucx_perftest: invalid option -- 'Z'\n"
    text += "   Process name: [prterun-vm-1@1,1]\n   Exit code:    129\n"
    program = foreign("ucx_perftest", "ucx_perftest", "-t", "tag_lat", "-Z", layer="ucx")
    found = judged(text, program, [MessagePoint(8, "uint8")], code=129)
    assert (found.kind, found.signature and found.signature.key) == (Kind.ERROR, "usage@ucx_perftest")


def test_ucx_perftest(judged: Judged) -> None:
    program = foreign(
        "ucx_perftest", "ucx_perftest", "node0", "-t", "tag_lat", "-s", "8", "-f", layer="ucx", check=False
    )
    text = greetings(library="") + UCX + sample("ucx_perftest-tag-lat-f")
    found = judged(text, program, [MessagePoint(8, "uint8")])
    assert (found.kind, found.transports) == (Kind.TRANSPORT_UNAVAILABLE, ("ucx/tcp",))
    assert "used ucx/tcp" in found.why
    assert "latency[8,uint8]" in names(found)
    assert found.facts["tool"] == "ucx_perftest 1.13.1"


@pytest.mark.parametrize("name", ["mpi4py-pingpong-openmpi-5", "mpi4py-ringtest-openmpi-5"])
def test_mpi4py_bench_has_the_version_that_its_rank_told(judged: Judged, name: str) -> None:
    text = greetings(versions={"mpi4py": "4.1.2"}) + PROOF + sample(name)
    program = foreign("mpi4py_bench", "{python}", "-m", "mpi4py.bench", check=False, ranks=None)
    found = judged(text, program)
    assert (found.kind, found.facts["tool"]) == (Kind.PASSED, "mpi4py.bench 4.1.2")
    assert found.facts["mpi4py"] == "4.1.2"
    assert not [name for name in names(found) if name.startswith("deviation")]


def test_ranks_of_another_launcher_are_alone(judged: Judged) -> None:
    alone = "time for 1 loops = 0.00685544 seconds (1 processes, 1024 bytes)\n"
    found = judged(greetings() + PROOF + alone * 2, foreign("mpi4py_bench", "{python}"), [MessagePoint(1024, "uint8")])
    assert (found.kind, found.verdict) == (Kind.WRONG_RESULT, Verdict.NEW)
    assert found.why == "mpi4py.bench measured 1 rank, so nothing moved; asked for were 2 ranks"


def test_ranks_that_load_another_mpi_than_their_launchers(judged: Judged) -> None:
    text = greetings(library="MPICH Version: 5.0.2") + PROOF + sample("mpi4py-ringtest-crossed")
    found = judged(text, foreign("mpi4py_bench", "{python}"), [MessagePoint(1024, "uint8")])
    assert found.kind is Kind.LAUNCH_FAILURE
    assert found.why.startswith("rank 0 loaded MPICH Version: 5.0.2")


def command(**settings: Any) -> ExternalProgram:
    from pytest_hetgpu.extensions.output_patterns import CommandSettings

    told = CommandSettings.model_validate(settings).model_dump_json(exclude_defaults=True)
    return ExternalProgram(("./app",), "command", settings=told, check=False, proof=False)


def test_a_command_by_its_own_words(judged: Judged) -> None:
    pytest.importorskip("re2")
    pattern = {"pattern": r"(?P<size>\S+) bytes: (?P<value>\S+) (?P<unit>GB/s)", "metric": "busbw", "size": "64K"}
    asked = command(patterns=[pattern], success="ALL PASSED", failure="MISMATCH")
    good = greetings(library="") + "64K bytes: 1.5 GB/s\nALL PASSED\n"
    found = judged(good, asked)
    assert (found.kind, names(found), found.facts["tool"]) == (Kind.PASSED, ["busbw[65536,none]"], "app")
    assert judged(good.replace("ALL PASSED", ""), asked).kind is Kind.WRONG_RESULT
    assert "MISMATCH at 3" in judged(good + "MISMATCH at 3\n", asked).why
    nothing = judged(good.replace("64K bytes", "no bytes"), asked)
    assert (nothing.kind, nothing.verdict) == (Kind.UNKNOWN, Verdict.NEW)


def test_a_command_that_ends_badly_is_told_by_that(judged: Judged) -> None:
    pytest.importorskip("re2")
    raised = 'Traceback (most recent call last):\n  File "app.py", line 3, in <module>\n    main()\nValueError: no\n'
    found = judged(greetings(library="") + raised, command(success="OK"), code=1)
    assert (found.kind, found.signature and found.signature.key) == (Kind.ERROR, "ValueError@app.py")


def test_json_among_what_libraries_print(judged: Judged) -> None:
    document = json.dumps({"ok": True, "runs": [{"bytes": 8, "us": 1.5}]}, indent=1)
    numbers = {"path": "runs.*.us", "sizes": "runs.*.bytes", "unit": "us"}
    asked = command(json_success="ok", json_numbers=[numbers])
    found = judged(f"{greetings()}{PROOF}{document}\nbye\n", asked)
    assert (found.kind, found.why, names(found)) == (Kind.PASSED, "", ["latency[8,none]"])


def test_a_time_or_rate_of_0_is_no_measurement(judged: Judged) -> None:
    numbers = [{"path": name, "unit": unit, "metric": name} for name, unit in (("busbw", "GB/s"), ("lost", "packets"))]
    asked = command(json_success="ok", json_numbers=numbers)

    def of(**said: float) -> Outcome:
        found: Outcome = judged(greetings() + PROOF + json.dumps({"ok": True, **said}) + "\n", asked)
        return found

    assert of(busbw=1.5, lost=0).kind is Kind.PASSED
    found = of(busbw=0, lost=0)
    assert (found.kind, found.verdict) == (Kind.UNKNOWN, Verdict.NEW)
    assert found.why == "app measured 0 at point 0,none, which is no time and no rate"
    assert of(busbw=0.0, lost=1).kind is of(busbw=float("nan"), lost=0).kind is Kind.UNKNOWN


def ends(*codes: int | None) -> str:
    return "".join(record(t="exit", rank=rank, code=code) for rank, code in enumerate(codes) if code is not None)


def test_each_rank_reports_its_own_end_whatever_the_launcher_exits_with(judged: Judged) -> None:
    head, asked = greetings(library="", exits=True) + PROOF, command()
    assert judged(head + ends(0, 0), asked).kind is Kind.PASSED
    failed = judged(head + ends(0, 3), asked)
    assert (failed.kind, failed.why) == (Kind.ERROR, "rank 1 ended with exit code 3")
    crashed = judged(head + ends(0) + record(t="exit", rank=1, signal=11), asked)
    assert (crashed.kind, crashed.why) == (Kind.CRASH, "rank 1 died of SIGSEGV")
    for silent in ("", record(t="exit", rank=1, signal=15)):
        lost = judged(head + ends(0) + silent, asked)
        assert (lost.kind, lost.why) == (Kind.ERROR, "rank 1 did not reach the end")
    # A log of an earlier version has no such reports.
    assert judged(greetings(library="") + PROOF, asked).kind is Kind.PASSED


def test_names_of_a_users_own_fit_into_reports(judged: Judged) -> None:
    pytest.importorskip("re2")
    pattern = {"pattern": r"(?P<metric>[^=]+)=(?P<value>\d+) of (?P<dtype>.+)"}
    found = judged(greetings() + "images per s=7 of [a,b]\n", command(patterns=[pattern]))
    assert names(found) == ["images_per_s[0,_a_b_]"]


def test_without_re2_the_output_cannot_be_read_and_nothing_passes(
    judged: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ExternalProgram(("./app",), "command", settings='{"success": "OK"}', check=False, proof=False)
    monkeypatch.setitem(sys.modules, "re2", None)
    found = judged(greetings() + "OK\n", asked)
    assert (found.kind, found.verdict) == (Kind.UNKNOWN, Verdict.NEW)
    assert "google-re2" in found.why


def test_what_ranks_wrote_into_our_records_is_nobodys_row(judged: Judged) -> None:
    damaged = "@hetgpu:0042:00000000:{broken\n" + record(t="program", rank="x") + record(t="program", rank=0, path=3)
    text = greetings() + damaged + PROOF + sample("osu-7.0-allreduce-checked")
    assert judged(text, foreign(), [MessagePoint(8, "")]).kind is Kind.PASSED


SURVIVED = f"""{"-" * 74}
Your application has invoked an MPI function that is not supported in
this environment.

  MPI function: MPI_Comm_spawn
  Reason:       the environment
{"-" * 74}
"""


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ("test_{0} (test_p2p.TestP2P.test_{0}) ... ok\n", Kind.TIMEOUT),
        ("ok {0} - send and receive\n", Kind.TIMEOUT),
        ("tests/test_p2p.py::test_{0} PASSED   [ {0}%]\n", Kind.TIMEOUT),
        ("..s{0:.>20} [ 25%]\n", Kind.ERROR),  # a figure among the dots is no test
        ("..s...F...x.. [ 25%]\n", Kind.TIMEOUT),
        (".[vm:281{0}] select: component ucx selected\n", Kind.TIMEOUT),
        ("[       OK ] Ring.Sends{0} (12 ms)\n", Kind.TIMEOUT),
        ("step {0} of 100: residual 0.1{0}\n", Kind.TIMEOUT),
        ("waiting for the others\n", Kind.ERROR),
    ],
)
def test_a_program_that_goes_on_after_an_error_did_not_end_of_it(judged: Judged, after: str, kind: Kind) -> None:
    stopped = {"timed_out": True, "quiet": 0.5, "returncode": -15}
    text = greetings() + "starting\n" + SURVIVED + "".join(map(after.format, range(10, 30)))
    found = judged(text, command(), run=stopped)
    assert found.kind is kind
    assert (found.signature is None) == (kind is Kind.TIMEOUT)


LOCKED = (
    "[1795767844.67{0}] [vm2:612  :0]  ib_md.c:297  UCX  ERROR ibv_reg_mr(address=0x7f86{0}, length={0}, access=0xf)"
)
LOCKED += (
    " failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)\n"
)


@pytest.mark.parametrize(("times", "kind"), [(40, Kind.OUT_OF_MEMORY), (1, Kind.TIMEOUT)])
def test_a_library_that_tries_for_ever_what_fails_is_no_mere_timeout(judged: Judged, times: int, kind: Kind) -> None:
    """UCX 1.20 registers memory again and again where the limit on locked memory is 64 KiB."""
    stopped = {"timed_out": True, "quiet": 0.1, "returncode": -15}
    found = judged("".join(map(LOCKED.format, range(100, 100 + times))), command(), run=stopped)
    assert found.kind is kind


ABORTED = """[1795768059.51] [vm:1:0] ucp_worker.c:1912 UCX  INFO    ucp_context_0 inter-node cfg#1 tag(rc_verbs/rxe0:1)
[vm:1  :0:1]       ud_ep.c:296  Fatal: UD endpoint 0x55ce521e9530 to <no debug data>: unhandled timeout error
[vm:00001] *** Process received signal ***
[vm:00001] Signal: Aborted (6)
[vm:00001] Signal code:  (-6)
[vm:00001] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7fa2ba25d050]
[vm:00001] [ 1] /lib/x86_64-linux-gnu/libc.so.6(abort+0xd3)[0x7fa2ba247472]
[vm:00001] [ 2] /opt/openmpi-5/lib/openmpi/ucx/libuct_ib.so.0(+0x28f40)[0x7fa2b3935f40]
[vm:00001] *** End of error message ***
prterun noticed that process rank 0 with PID 1 on node vm exited on
signal 6 (Aborted).
"""


def test_a_library_that_ends_its_process_and_says_why(judged: Judged) -> None:
    """Packets of RoCE (UDP, port 4791) were dropped between two nodes: no crash of UCX, but a network that fails."""
    found = judged(greetings() + ABORTED, command(), code=134, family="ucx")
    assert found.kind is Kind.NETWORK_FAILURE
    assert found.signature is not None
    assert (found.signature.key, found.signature.signal) == ("unhandled-timeout@ucx", "SIGABRT")


def test_a_launcher_that_hangs_after_a_failed_start_reports_how_it_was_stopped(judged: Judged) -> None:
    """PRRTE 3.0 now and then does not end after a program that it did not find; we stop it by a signal."""
    text = "env: '/hetgpu-absent/bin/python3': No such file or directory\n"
    text += "Abort is in progress...hit ctrl-c again to forcibly terminate\n"
    found = judged(text, command(), run={"timed_out": True, "quiet": 4.0, "returncode": -15})
    assert (found.kind, found.signature and found.signature.key) == (Kind.LAUNCH_FAILURE, "no-program@python3")
