"""Outcomes from an external program's output: its own samples, and every trap of the definitions, judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.analysis.interpret_runs import PROOF, Judged, foreign, greetings, judged, names, record, sample
from tests.analysis.judges.judge_cases import expectation

__all__ = ["judged"]


def test_osu_checked_passes_with_its_numbers_tool_and_memory(judged: Judged) -> None:
    text = greetings() + PROOF + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(), [MessagePoint(size, "") for size in (8, 16, 1024)])
    assert (found.kind, found.verdict, found.why) == (Kind.PASSED, Verdict.OK, "")
    assert found.facts["tool"] == "osu_allreduce 7.0"
    assert (found.facts["osu"], found.facts["memory"]) == ("7.0", "host")
    assert {"latency[8,float32]", "busbw[8,float32]"} <= set(names(found))
    assert not [name for name in names(found) if "_min" in name or "_max" in name]
    assert found.transports == ("ob1/tcp",)
    assert found.stack.startswith("Open MPI 5.0.11")


def test_a_condition_may_ask_for_the_tool_and_its_version(judged: Judged) -> None:
    from pytest_hetgpu.model.failure import Condition

    text = greetings() + PROOF + sample("osu-7.0-allreduce-checked")
    wanted = (Condition("osu", ">=7.0,<7.4"), Condition("memory", "host"))
    found = judged(text, foreign(), [MessagePoint(8, "")], expectations=(expectation(Kind.WRONG_RESULT, when=wanted),))
    assert found.verdict is Verdict.FIXED


def test_osu_that_was_not_told_to_check_is_not_passed(judged: Judged) -> None:
    text = greetings() + PROOF + sample("osu-7.0-allreduce-full")
    points = [MessagePoint(8, "")]
    found = judged(text, foreign(), points)
    assert (found.kind, found.verdict) == (Kind.UNKNOWN, Verdict.NEW)
    assert found.why == "osu_allreduce 7.0 verified nothing at point 8"
    assert judged(text, foreign(check=False), points).kind is Kind.PASSED


def test_points_that_are_owed_and_not_measured(judged: Judged) -> None:
    text = greetings() + PROOF + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(), [MessagePoint(8, "int8"), MessagePoint(1 << 30, ""), MessagePoint(8, "", "in")])
    assert found.kind is Kind.UNKNOWN
    assert found.why == "osu_allreduce 7.0 measured nothing at points 8,int8, 1073741824, 8,in"


def test_a_check_that_fails_is_a_wrong_result(judged: Judged) -> None:
    text = (
        greetings()
        + PROOF
        + (
            "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size   Avg Latency(us)   Validation\n"
            "8   26.61   Pass\n16   29.02   Fail\n"
            "DATA VALIDATION ERROR: /opt/osu_allreduce exited with status 1 on message size 16.\n"
        )
    )
    found = judged(text, foreign(), [MessagePoint(8, "")], code=1)
    assert (found.kind, found.verdict) == (Kind.WRONG_RESULT, Verdict.NEW)
    assert "message size 16" in found.why
    assert found.facts["tool"] == "osu_allreduce 7.4"


def test_another_mpi_than_the_stacks_is_a_launch_failure(judged: Judged) -> None:
    text = greetings(library="MPICH Version: 5.0.2") + PROOF + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(), [MessagePoint(8, "")])
    assert found.kind is Kind.LAUNCH_FAILURE
    assert "loaded MPICH" in found.why


def test_a_program_that_is_linked_with_no_mpi_is_not_blamed_for_that(judged: Judged) -> None:
    text = greetings(library="") + PROOF + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(), [MessagePoint(8, "")])
    assert (found.kind, found.stack) == (Kind.PASSED, "")


def test_a_transport_that_does_not_show_itself_is_not_passed(judged: Judged) -> None:
    text = greetings() + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(), [MessagePoint(8, "")])
    assert found.kind is Kind.UNKNOWN
    assert "nothing in the output proves which transport was used" in found.why
    assert judged(text, foreign(proof=False), [MessagePoint(8, "")]).kind is Kind.PASSED


def test_a_node_without_the_program_is_a_cell_that_is_not_run(judged: Judged) -> None:
    text = greetings(path="", looked=["/opt/*/bin", "/usr/bin"]) + "prterun detected that one or more processes ...\n"
    found = judged(text, foreign(), [MessagePoint(8, "")], code=127)
    assert (found.kind, found.verdict) == (Kind.SKIPPED, Verdict.NOT_RUN)
    assert (
        found.why == "there is no osu_x on vm (looked for in /opt/*/bin, /usr/bin): install it there, or set `folders`"
    )
    assert (found.rank_outcomes, found.others, found.signature) == ((), (), None)


def test_a_file_that_cannot_be_executed_is_not_said_to_be_absent(judged: Judged) -> None:
    text = greetings(name="/home/me/heat.py", path="", looked=["/home/me/heat.py"])
    found = judged(text, foreign(), [MessagePoint(8, "")], code=127)
    assert found.why == (
        "there is no executable file /home/me/heat.py on vm: install it there, or name its interpreter before it"
    )


def test_a_launcher_that_did_not_start_anything(judged: Judged) -> None:
    found = judged("", foreign(), [MessagePoint(8, "")], code=1)
    assert found.kind is Kind.LAUNCH_FAILURE


def test_ranks_that_never_greeted_are_missed(judged: Judged) -> None:
    text = greetings(3) + PROOF + sample("osu-7.0-allreduce-checked")
    found = judged(text, foreign(ranks=4), [MessagePoint(8, "")], ranks=4)
    assert "rank 3 never reported" in {finding.why for finding in found.findings}
    assert found.verdict is Verdict.NEW


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ({}, Kind.WRONG_RESULT),
        ({"timed_out": True, "returncode": -9, "quiet": 7.0, "seconds": 8.0}, Kind.HANG),
        ({"returncode": -9, "lost": ("node node1 (one on localhost) was lost: exit code 137",)}, Kind.CRASH),
        # mpirun may end with 0 though a node of its job is gone.
        ({"lost": ("node node1 (one on localhost) was lost: exit code 137",)}, Kind.NETWORK_FAILURE),
    ],
)
def test_a_word_of_success_is_missed_only_of_a_program_that_came_to_its_end(
    judged: Judged, run: dict[str, Any], kind: Kind
) -> None:
    program = foreign("command", "./app", settings='{"success": "fine"}', check=False, proof=False)
    text = greetings() + "".join(f"hetgpu: {why}\n" for why in run.get("lost", ()))
    found = judged(text, program, run=run)
    assert found.kind is kind, found
    assert ("which marks success" in found.why) is (kind is Kind.WRONG_RESULT)


def test_a_version_without_the_benchmark_is_skipped(judged: Judged) -> None:
    argv = ("{python}", "-m", "mpi4py", "-m", "mpi4py.bench", "pingpong")
    asked = foreign(argv=argv, reader="mpi4py_bench", check=False)
    text = greetings(versions={"mpi4py": "3.1.4"}) + PROOF
    refused = "usage: __main__ [options] <command> [args]\n__main__: error: unknown command 'pingpong'\n"
    found = judged(text + refused, asked, [MessagePoint(8, "")], code=2)
    assert (found.kind, found.verdict, found.why) == (
        Kind.SKIPPED,
        Verdict.NOT_RUN,
        "mpi4py 3.1.4 has no pingpong",
    )
    # A word that the workload did not say, and a run that went on, are no lack of the version.
    other = refused.replace("pingpong", "pingpang")
    assert judged(text + other, asked, [MessagePoint(8, "")], code=2).kind is Kind.ERROR
    assert judged(text + refused, asked, [MessagePoint(8, "")]).kind is Kind.ERROR


def test_a_version_without_the_check_is_skipped(judged: Judged) -> None:
    argv = ("ucx_perftest", "node0", "-t", "tag_lat", "-V")
    asked = foreign(argv=argv, reader="ucx_perftest", layer="ucx")
    text = greetings(versions={"ucx": "1.13.1"}) + PROOF + "ucx_perftest: invalid option -- 'V'\n"
    found = judged(text, asked, [MessagePoint(8, "")], code=1)
    assert found.kind is Kind.SKIPPED
    assert found.why.startswith("ucx 1.13.1 has no option -V, which checks the data")
    unchecked = foreign(argv=argv[:-1], reader="ucx_perftest", layer="ucx", check=False)
    assert judged(text, unchecked, [MessagePoint(8, "")], code=1).kind is Kind.ERROR


@pytest.mark.parametrize(
    ("settings", "text", "kind", "why"),
    [
        # The pattern of failure was searched before anything was dropped.
        ({"success": "GOOD", "failure": "BAD"}, "GOOD\n", Kind.PASSED, ""),
        (
            {"success": "GOOD"},
            "",
            Kind.UNKNOWN,
            "nothing fits 'GOOD', which marks success; 9 bytes of the output were not",
        ),
        ({"tests": "tap"}, "1..2\nok 1\n", Kind.UNKNOWN, "1 of 2 planned tests did not run on rank 0; 9 bytes"),
        ({"tests": "tap"}, "1..1\nok 1\n", Kind.UNKNOWN, "success was shown by 1 of 2 ranks; 9 bytes of the output"),
        ({"json_success": "ok"}, '{"ok": true}\n', Kind.UNKNOWN, "success was shown by 1 of 2 ranks; 9 bytes"),
    ],
)
def test_text_that_was_not_kept_proves_nothing(
    judged: Judged, settings: dict[str, str], text: str, kind: Kind, why: str
) -> None:
    pytest.importorskip("re2")
    program = foreign("command", labels="open-mpi-4", settings=json.dumps(settings), proof=False, check=False)
    said = "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines())
    ends = "".join(record(t="exit", rank=rank, code=0, at=2.0) for rank in range(2))
    log = greetings(exits=True) + said + ends
    found = judged(log, program, run={"left_out": 9})
    assert (found.kind, found.why.startswith(why)) == (kind, True)
    refuted = judged(log, program, run={"left_out": 9, "refuted": "'BAD' was found on rank 1: BAD"})
    assert (refuted.kind, refuted.why) == (Kind.WRONG_RESULT, "osu_allreduce: 'BAD' was found on rank 1: BAD")


def test_a_failure_that_the_program_reports_decides_in_a_stopped_run(judged: Judged) -> None:
    pytest.importorskip("re2")
    program = foreign("command", settings=json.dumps({"success": "GOOD", "failure": "BAD"}), proof=False, check=False)
    stopped = judged(greetings() + "BAD\n", program, run={"interrupted": "SIGINT", "returncode": None})
    assert (stopped.kind, stopped.verdict) == (Kind.WRONG_RESULT, Verdict.NEW)
    late = judged(greetings() + "BAD\n", program, run={"timed_out": True, "returncode": None})
    assert late.kind is Kind.WRONG_RESULT


def test_a_crash_that_ranks_print_is_no_pass_if_nothing_was_verified(judged: Judged) -> None:
    pytest.importorskip("re2")
    report = "[vm:123:0:123] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n"
    ends = "".join(record(t="exit", rank=rank, code=0, at=2.0) for rank in range(2))
    said = "".join(f"[1,{rank}]<stdout>: {report}" for rank in range(2))
    for settings, kind in (({}, Kind.UNKNOWN), ({"success": "Caught"}, Kind.PASSED)):
        program = foreign("command", labels="open-mpi-5", settings=json.dumps(settings), proof=False, check=False)
        assert judged(greetings(library="", exits=True) + said + ends, program).kind is kind
