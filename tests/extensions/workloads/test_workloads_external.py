"""Programs of other projects: their options, their required points, and refused settings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_hetgpu.extensions.registry import find
from pytest_hetgpu.extensions.workloads.base import Workload
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.records import MessagePoint


def workload(kind: str, **settings: Any) -> Workload:
    found = find("workloads", kind, Workload)  # type: ignore[type-abstract]
    return found(found.Settings.model_validate(settings))


def told(made: Workload) -> str:
    """Return the command behind the wrapper's options."""
    return " ".join(made.program()).partition(" -- ")[2]


def asked(made: Workload, ranks: int = 2) -> ExternalProgram:
    found = made.external(ranks)
    assert found
    return found


@pytest.mark.parametrize(
    ("kind", "settings", "command"),
    [
        (
            "osu",
            {"program": "osu_allreduce", "sizes": "8..1K", "iterations": "20", "warmup": "5"},
            "osu_allreduce -m 8:1024 -i 20 -x 5 -c -f",
        ),
        (
            "osu",
            {"program": "osu_allreduce", "sizes": "64", "dtype": "float32", "in_place": "true", "arguments": ["-z"]},
            "osu_allreduce -m 64:64 -i 100 -x 10 -c -f -T mpi_float -l -z",
        ),
        (
            "osu",
            {
                "program": "/opt/osu/osu_bw",
                "sizes": "1..4",
                "check": "false",
                "arguments": ["-d", "{platform}", "D", "D"],
            },
            "/opt/osu/osu_bw -m 1:4 -i 100 -x 10 -d {platform} D D",
        ),
        (
            "imb",
            {"benchmark": "Allreduce", "sizes": "8..1K", "iterations": "20", "check": "false"},
            "IMB-MPI1 Allreduce -npmin 1000000 -msglog 3:10 -iter 20 -iter_policy off",
        ),
        (
            "imb",
            {"program": "/opt/IMB-NBC", "benchmark": "Ibarrier", "check": "false"},
            "/opt/IMB-NBC Ibarrier -npmin 1000000 -iter 100 -iter_policy off",
        ),
        ("osu", {"program": "osu_ibarrier", "check": "false"}, "osu_ibarrier -i 100 -x 10 -f"),
        (
            "nccl_tests",
            {"sizes": "1K..4K", "gpus": "4"},
            "all_reduce_perf -b 1024 -e 4096 -f 2 -n 20 -w 5 -c 1 -d float -g 4 -t 1",
        ),
        (
            "nccl_tests",
            {"program": "reduce_perf_mpi", "sizes": "1K", "dtype": "bfloat16", "redop": "max", "check": "false"},
            "reduce_perf_mpi -b 1024 -e 1024 -f 2 -n 20 -w 5 -c 0 -d bfloat16 -g 1 -t 1 -o max",
        ),
        (
            "ucx_perftest",
            {"size": "64K", "test": "tag_bw", "check": "false", "port": "20000"},
            "ucx_perftest -p 20000 ::: ucx_perftest {node0} -p 20000 -t tag_bw -s 65536 -n 1000 -w 100 -f",
        ),
        (
            "ucx_perftest",
            {},
            "ucx_perftest -p 13337 ::: ucx_perftest {node0} -p 13337 -t tag_lat -s 8 -n 1000 -w 100 -f -V",
        ),
        (
            "ucc_perftest",
            {"sizes": "8..16", "check": "false", "memory": "{memory}", "in_place": "true"},
            "ucc_perftest -c allreduce -b 2 -e 4 -d float32 -m {memory} -n 100 -w 10 -F -i",
        ),
        ("ucc_perftest", {"collective": "barrier", "check": "false"}, "ucc_perftest -c barrier -n 100 -w 10 -F"),
        ("mpi4py_bench", {}, "{python} -m mpi4py -m mpi4py.bench ringtest -n 1024 -l 100 -s 10"),
        (
            "mpi4py_bench",
            {"benchmark": "pingpong", "check": "false", "sizes": "8..16", "iterations": "3", "warmup": "0"},
            "{python} -m mpi4py -m mpi4py.bench pingpong -m 8 -n 16 --loop 3 --loop-large 3 --loop-huge 3 --skip 0"
            " --skip-large 0 --skip-huge 0",
        ),
        ("mpi4py_bench", {"benchmark": "helloworld", "check": False}, "{python} -m mpi4py -m mpi4py.bench helloworld"),
        ("command", {"argv": ["./app", "1 2"], "check": False, "arguments": ["-x"]}, "./app 1 2 -x"),
    ],
)
def test_what_a_rank_executes(kind: str, settings: dict[str, Any], command: str) -> None:
    assert told(workload(kind, **settings)) == command


def test_how_it_is_started() -> None:
    made = workload("osu", program="osu_bw", folders=["/opt/*/bin", "/x"])
    tokens = made.argv("/s/bin/python", "/p")
    assert tokens[:7] == ("/s/bin/python", "/p/run_external.py", "--folder", "/opt/*/bin", "--folder", "/x", "--")
    bench = workload("mpi4py_bench").argv("/s/bin/python", "/p")
    assert bench[:6] == ("/s/bin/python", "/p/run_external.py", "--mpi4py", "--", "/s/bin/python", "-m")
    pair = workload("ucx_perftest").argv("python3", "/p")
    assert pair[:5] == ("python3", "/p/run_external.py", "--server", "{node0}:13337", "--")


@pytest.mark.parametrize(
    ("kind", "settings", "points"),
    [
        ("osu", {"program": "osu_allreduce", "sizes": "8..16"}, (MessagePoint(8, ""), MessagePoint(16, ""))),
        ("osu", {"program": "osu_allgather", "sizes": "8"}, (MessagePoint(32, ""),)),
        ("osu", {"program": "osu_ineighbor_alltoallw", "sizes": "8"}, (MessagePoint(32, ""),)),
        ("osu", {"program": "osu_gather_persistent", "sizes": "8"}, (MessagePoint(32, ""),)),
        ("osu", {"program": "osu_reduce_scatter", "sizes": "8"}, (MessagePoint(8, ""),)),
        (
            "osu",
            {"program": "osu_bcast", "sizes": "8", "dtype": "int32", "in_place": True},
            (MessagePoint(8, "int32", "in"),),
        ),
        ("osu", {"program": "osu_barrier", "check": False}, (MessagePoint(0, "none"),)),
        ("nccl_tests", {"sizes": "1K"}, (MessagePoint(1024, "float32"), MessagePoint(1024, "float32", "in"))),
        # Whose data in place is not checked.
        ("nccl_tests", {"program": "alltoall_perf", "sizes": "1K", "dtype": "int8"}, (MessagePoint(1024, "int8"),)),
        ("ucx_perftest", {"size": "1K"}, (MessagePoint(1024, "uint8"),)),
        ("ucc_perftest", {"sizes": "8", "check": False}, (MessagePoint(8, "float32"),)),
        ("ucc_perftest", {"collective": "gather", "sizes": "8", "check": False}, (MessagePoint(32, "float32"),)),
        ("ucc_perftest", {"collective": "barrier", "check": False}, (MessagePoint(0, "none"),)),
        ("mpi4py_bench", {}, (MessagePoint(1024, "uint8"),)),
        ("mpi4py_bench", {"benchmark": "helloworld", "check": False}, ()),
        ("command", {"argv": ["x"], "check": False}, ()),
    ],
)
def test_what_four_ranks_owe(kind: str, settings: dict[str, Any], points: tuple[MessagePoint, ...]) -> None:
    assert workload(kind, **settings).required_points(4) == points


def test_the_ranks_that_its_rows_must_be_of() -> None:
    assert asked(workload("osu", program="osu_allreduce"), 3).ranks == 3
    assert asked(workload("nccl_tests", gpus=4, threads=2), 2).ranks == 16
    assert asked(workload("mpi4py_bench", benchmark="pingpong", check=False), 3).ranks == 2
    assert asked(workload("mpi4py_bench"), 3).ranks == 3
    assert asked(workload("command", argv=["x"], check=False), 3).ranks is None


@pytest.mark.parametrize(
    ("kind", "settings", "ranks", "reason"),
    [
        ("osu", {"program": "osu_bw"}, 3, "needs exactly 2 ranks for osu_bw, this placement has 3"),
        ("osu", {"program": "osu_get_bw"}, 4, "needs exactly 2 ranks for osu_get_bw, this placement has 4"),
        ("osu", {"program": "osu_mbw_mr"}, 3, "needs an even number of ranks for osu_mbw_mr, this placement has 3"),
        ("osu", {"program": "osu_bcast"}, 1, "needs at least 2 ranks for osu_bcast, this placement has 1"),
        ("osu", {"program": "osu_bw"}, 2, None),
        ("nccl_tests", {}, 1, "needs at least 2 GPUs (ranks x threads x gpus): one alone moves nothing"),
        ("nccl_tests", {"gpus": 2}, 1, None),
        ("nccl_tests", {"program": "all_gather_perf", "sizes": "32..128"}, 2, None),
        (
            "nccl_tests",
            {"program": "all_gather_perf", "sizes": "32..128", "gpus": 2},
            2,
            "divides every size among 4 ranks by whole 16 bytes: no multiple of 64 bytes is 32",
        ),
        ("ucx_perftest", {}, 4, "needs exactly 2 ranks, this placement has 4"),
        ("mpi4py_bench", {}, 1, "needs at least 2 ranks, this placement has 1"),
    ],
)
def test_so_many_ranks(kind: str, settings: dict[str, Any], ranks: int, reason: str | None) -> None:
    assert workload(kind, **settings).unsuitable(ranks) == reason


def test_a_command_without_re2_says_so_where_it_would_be_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    made = workload("command", argv=["x"], success="OK")
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    assert "google-re2" in (made.unsuitable(2) or "")
    assert workload("command", argv=["x"], check=False).unsuitable(2) is None


def test_over_which_transports_it_runs() -> None:
    made = workload("ucx_perftest")
    assert made.unsuitable_transport("ucx") is None
    assert made.unsuitable_transport("ob1") == "runs over ucx alone, whatever MPI does; the cell's transport is ob1"
    assert workload("ucc_perftest", check=False).unsuitable_transport("ucx") is not None
    assert workload("nccl_tests").unsuitable_transport("ob1") is not None
    assert workload("osu", program="osu_bw").unsuitable_transport("ofi") is None


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("osu", {}, "program"),
        (
            "osu",
            {"program": "allreduce"},
            "'allreduce' must be a program of OSU's like osu_allreduce, or an absolute path",
        ),
        ("osu", {"program": "bin/osu_bw"}, "or an absolute path to it"),
        ("osu", {"program": "osu_hello"}, "osu_hello prints no table that is known"),
        ("osu", {"program": "osu_barrier"}, "osu_barrier verifies nothing: with `check: false`"),
        (
            "osu",
            {"program": "osu_bw", "sizes": "8..1000"},
            "osu_bw doubles sizes by itself: a range like 8..1M is needed",
        ),
        ("osu", {"program": "osu_bw", "sizes": ["8", "64"]}, "osu_bw doubles sizes by itself"),
        ("osu", {"program": "osu_bw", "folders": "bin"}, "'bin' must be an absolute path on the node"),
        ("osu", {"program": "osu_bw", "arguments": "-x"}, "a list of words is needed here"),
        ("osu", {"program": "osu_bw", "arguments": ["a", ":"]}, "a word that is only ':' or ':::' cannot be handed on"),
        ("nccl_tests", {"program": "alltoallv_perf"}, "the sizes of alltoallv_perf cannot be foretold"),
        ("nccl_tests", {"program": "nccl-tests"}, "must be one like all_reduce_perf"),
        ("ucx_perftest", {"test": "put_lat"}, "test 'put_lat' is of UCT: it takes its transport from options (-x, -d)"),
        ("ucx_perftest", {"test": "tag_bw"}, "tag_bw verifies nothing"),
        ("ucx_perftest", {"size": "8..16"}, "is not a size"),
        ("ucx_perftest", {"port": "80"}, "greater than or equal to 1024"),
        ("ucc_perftest", {}, "ucc_perftest verifies nothing"),
        ("ucc_perftest", {"check": False, "sizes": "2"}, "size 2 is not a whole number of float32"),
        ("mpi4py_bench", {"benchmark": "pingpong"}, "pingpong verifies nothing"),
        ("mpi4py_bench", {"sizes": "8..16"}, "ringtest has one size, not 2"),
        ("command", {"argv": ["x"]}, "nothing proves that the program's results are right: give `success`"),
        ("command", {"argv": []}, "at least 1 item"),
        ("command", {"argv": ["x"], "success": "("}, "is no RE2 pattern"),
    ],
)
def test_what_a_matrix_may_not_ask(kind: str, settings: dict[str, Any], said: str) -> None:
    if "RE2" in said:
        pytest.importorskip("re2")
    with pytest.raises(ValidationError, match=re.escape(said)):
        workload(kind, **settings)


def test_a_commands_patterns_are_stored_with_the_job() -> None:
    pattern = {"pattern": r"(?P<value>\d+) us", "unit": "us", "size": "64K"}
    found = asked(workload("command", argv=["x"], patterns=[pattern], success="OK", mpi="false"))
    assert json.loads(found.settings) == {
        "patterns": [{"unit": "us", "size": 65536, "pattern": r"(?P<value>\d+) us"}],
        "success": "OK",
    }
    assert (found.proof, found.check) == (False, False)
    again = workload("command", argv=["x"], patterns=[pattern | {"size": "64K"}], success="OK")
    assert asked(again).settings == found.settings


def test_points_and_ranks_of_imb() -> None:
    gathered = workload("imb", benchmark="Allgather", sizes="8..16", check="false")
    assert [point.size for point in gathered.required_points(4)] == [32, 64]
    assert workload("imb", benchmark="Barrier", check="false").points() == (MessagePoint(0, "none"),)
    assert asked(workload("imb", benchmark="PingPong", check="false"), 4).ranks == 2
    assert asked(workload("imb", benchmark="Allreduce", check="false"), 4).ranks == 4
    assert gathered.unsuitable(1)
    with pytest.raises(ValidationError, match="powers of two only"):
        workload("imb", benchmark="PingPong", sizes="12", check="false")


def test_metrics_are_known_before_the_run() -> None:
    bandwidth = workload("osu", program="osu_bw", check="false").metrics()
    assert bandwidth is not None
    assert {"busbw", "bandwidth", "message_rate"} <= bandwidth.keys()
    assert "busbw" not in (workload("osu", program="osu_barrier", check="false").metrics() or {})
    assert workload("mpi4py_bench", benchmark="helloworld", check="false").metrics() == {}
    training = workload("ddp_train").metrics()
    assert training is not None
    assert (training["samples"].unit, training["samples"].better) == ("1/s", "higher")


def test_metrics_of_ones_own_program() -> None:
    loop = {"pattern": "t=(?P<value>.)", "metric": "loop", "unit": "s"}
    energy = {"pattern": "e=(?P<value>.)", "metric": "energy", "unit": "Ry", "better": "lower"}
    either = {"pattern": "v=(?P<value>.) (?P<unit>.)", "metric": "either"}
    made = workload("command", argv=["x"], check="false", patterns=[loop, energy, either]).metrics()
    assert made == {"loop": ("s", "lower"), "energy": ("Ry", "lower"), "either": (None, "")}
    named = {"pattern": "(?P<metric>.)=(?P<value>.)"}
    assert workload("command", argv=["x"], check="false", patterns=[loop, named]).metrics() is None
    two = [{**loop, "operation": name} for name in ("read", "write")]
    found = workload("command", argv=["x"], check="false", patterns=two).metrics()
    assert found is not None
    assert list(found) == ["read_loop", "write_loop"]
