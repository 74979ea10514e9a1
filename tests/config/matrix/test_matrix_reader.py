"""What a matrix file says, as the rest of the program knows it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_hetgpu.config.matrix.matrix import Matrix
from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.errors import MatrixError
from pytest_hetgpu.extensions.hardware.cuda import Cuda
from pytest_hetgpu.extensions.hardware.rocm import Rocm
from pytest_hetgpu.model.failure import Condition
from pytest_hetgpu.model.job import Accelerator, Exclusion, Expectation, Fabric, Hardware, Origin
from pytest_hetgpu.model.verdict import Kind

Reads = Callable[..., Matrix]

AWS = """\
name: aws-g4
x-common: &common
  runtime: local
  env: {UCX_LOG_LEVEL: info}
x-fabric: &ens5 {kind: tcp, netdev: ens5, gbps: 10}
hardware:
  g4ad:
    <<: *common
    platform: rocm
    arch: gfx1011
    count: 2
    memory: 8G
    mpi: {stack: openmpi-5}
    fabric: *ens5
    mca: {btl_tcp_links: 2}
    capabilities: [no-large-bar]
  g4dn:
    <<: *common
    platform: cuda
    arch: sm_75
    fabric: {<<: *ens5, gbps: 25, hca: "mlx5_0:1", gid_index: 3, kind: roce}
    env: {UCX_LOG_LEVEL: debug}
  cpu:
transports:
  ucx-posix: {family: ucx, tls: [posix, self]}
axes:
  placement:
    mixed: [g4dn, g4ad]
    wide: {nodes: [cpu, cpu], ranks_per_node: 4, timeout: 2.5, requires: [big-pages, platform=cpu]}
  transport:
    ucx-tcp: {family: ucx, tls: [tcp, cuda_copy, rocm_copy], net_devices: ens5}
    ob1:
  workload:
    send_recv: {}
    big: {kind: allreduce, sizes: 1M..4M, dtype: [float32, int8], env: {VERSION: 6.10, FLAG: on, OFF: no}}
"""


def test_hardware_is_read_with_its_merges_and_overrides(reads: Reads) -> None:
    document = reads(AWS)
    assert document.hardware == {
        "g4ad": Hardware(
            "g4ad",
            Accelerator("rocm", "gfx1011", 2, 8 * 1024**3),
            Fabric("tcp", "ens5", None, None, 10.0),
            env={"UCX_LOG_LEVEL": "info"},
            mca={"btl_tcp_links": "2"},
            capabilities=frozenset({"no-large-bar"}),
            container=Rocm.container,
        ),
        "g4dn": Hardware(
            "g4dn",
            Accelerator("cuda", "sm_75"),
            Fabric("roce", "ens5", "mlx5_0:1", 3, 25.0),
            container=Cuda.container,
            env={"UCX_LOG_LEVEL": "debug"},
        ),
        "cpu": Hardware("cpu"),
    }


def test_axes_come_in_order_with_what_their_values_say(reads: Reads) -> None:
    document = reads(AWS)
    assert [axis.name for axis in document.axes] == ["placement", "transport", "workload"]
    assert [value.name for axis in document.axes for value in axis.values] == [
        *("mixed", "wide"),
        *("ucx-tcp", "ob1"),
        *("send_recv", "big"),
    ]
    assert document.axis_value("placement", "mixed").nodes == ("g4dn", "g4ad")
    assert document.axis_value("transport", "ucx-tcp").kind == "ucx"
    assert document.axis_value("transport", "ob1").kind == "ob1"
    assert document.axis_value("workload", "big").kind == "allreduce"
    assert document.axis_value("workload", "big").origin == Origin("m.yaml", 35)


def test_settings_of_a_cell_come_together(reads: Reads) -> None:
    settings = reads(AWS).settings(("wide", "ucx-tcp", "big"))
    assert settings.nodes == ("cpu", "cpu")
    assert (settings.options.ranks_per_node, settings.options.timeout) == (4, 2.5)
    assert settings.options.requires == ("big-pages", "platform=cpu")
    assert settings.family == "ucx"
    assert settings.transport.components() == ("ucx/tcp", "ucx/cuda_copy", "ucx/rocm_copy")
    assert [str(point) for point in settings.workload.points()] == [
        *("1048576,float32", "2097152,float32", "4194304,float32"),
        *("1048576,int8", "2097152,int8", "4194304,int8"),
    ]


def test_an_environment_value_is_its_source_text(reads: Reads) -> None:
    assert reads(AWS).settings(("mixed", "ob1", "big")).options.env == {"VERSION": "6.10", "FLAG": "on", "OFF": "no"}


def test_a_further_axis_of_settings_merges_into_every_cell(reads: Reads) -> None:
    document = reads(AWS + "  tuning: {default: , zcopy: {env: {UCX_ZCOPY_THRESH: 0}, timeout: 9}}\n")
    assert document.settings(("mixed", "ob1", "big", "default")).options.timeout is None
    zcopy = document.settings(("mixed", "ob1", "big", "zcopy")).options
    assert zcopy.env == {"VERSION": "6.10", "FLAG": "on", "OFF": "no", "UCX_ZCOPY_THRESH": "0"}
    assert zcopy.timeout == 9


def test_a_list_is_an_axis_of_one_known_setting(reads: Reads) -> None:
    document = reads(AWS.replace("ranks_per_node: 4, ", "") + "  ranks_per_node: [1, 2]\n  dtype: [float64]\n")
    ranks, dtype = document.axes[3:]
    assert [value.name for value in ranks.values] == ["ranks_per_node1", "ranks_per_node2"]
    assert [value.name for value in dtype.values] == ["float64"]
    cell = document.settings(("mixed", "ob1", "send_recv", "ranks_per_node2", "float64"))
    assert cell.options.ranks_per_node == 2
    assert {point.dtype for point in cell.workload.points()} == {"float64"}


@pytest.mark.parametrize(
    ("axis", "names"),
    [
        ("timeout: [1.5, 2]", ["timeout1.5", "timeout2"]),
        ("iterations: [5]", ["iterations5"]),
        ("sizes: [4K, 8..64]", ["4K", "8..64"]),
    ],
)
def test_numbers_alone_would_be_no_names(reads: Reads, axis: str, names: list[str]) -> None:
    text = AWS.replace(", timeout: 2.5", "").replace("sizes: 1M..4M, ", "")
    assert [value.name for value in reads(f"{text}  {axis}\n").axes[3].values] == names


def test_a_further_axis_may_set_what_only_one_family_takes(reads: Reads) -> None:
    document = reads(AWS.replace("    ob1:\n", "") + "  lanes: {shm: {net_devices: [posix]}}\n")
    with pytest.raises(MatrixError, match="sets net_devices to"):
        document.settings(("mixed", "ucx-tcp", "send_recv", "shm"))
    document = reads(
        AWS.replace("    ob1:\n", "").replace(", net_devices: ens5", "") + "  lanes: {two: {net_devices: [a, b]}}\n"
    )
    transport = document.settings(("mixed", "ucx-tcp", "send_recv", "two")).transport
    assert getattr(transport.settings, "net_devices") == ("a", "b")  # noqa: B009


RULES = (
    AWS
    + """\
include:
  - {placement: wide, transport: ucx-posix, workload: [send_recv, big]}
  - placement: {name: lone, nodes: [cpu]}
    transport: {name: mine, family: ob1, btl: [sm, self]}
    workload: "*"
exclude:
  - {placement: mixed, transport: "ucx*", reason: no GPUs here, issue: "https://example.org/1"}
  - where: {workload: [big]}
    reason: too slow
expect:
  - where: {placement: [lone, wide], transport: "*", workload: send_recv}
    outcome: [crash, hang]
    signature: "SIGSEGV@*"
    when: {ucx: "<1.18", capability: no-large-bar, stack: openmpi-*}
    issue: https://example.org/2
    reason: known
    fixed_in: 1.20
    remedy: {env: {UCX_ZCOPY_THRESH: 0}}
    strict: false
"""
)


def test_rules_name_values_by_name_list_and_glob(reads: Reads) -> None:
    document = reads(RULES)
    assert [dict(rule.where) for rule in document.include] == [
        {"placement": ("wide",), "transport": ("ucx-posix",), "workload": ("send_recv", "big")},
        {"placement": ("lone",), "transport": ("mine",), "workload": ("send_recv", "big")},
    ]
    assert [dict(rule.where) for rule in document.exclude] == [
        {"placement": ("mixed",), "transport": ("ucx-tcp", "ucx-posix")},
        {"workload": ("big",)},
    ]
    assert [dict(rule.where) for rule in document.expect] == [
        {
            "placement": ("lone", "wide"),
            "transport": ("ucx-tcp", "ob1", "ucx-posix", "mine"),
            "workload": ("send_recv",),
        }
    ]


def test_an_exclusion_knows_reason_issue_and_place(reads: Reads) -> None:
    assert [rule.exclusion for rule in reads(RULES).exclude] == [
        Exclusion("no GPUs here", "https://example.org/1", Origin("m.yaml", 42)),
        Exclusion("too slow", None, Origin("m.yaml", 43)),
    ]


def test_an_expectation_knows_all_that_is_written(reads: Reads) -> None:
    (rule,) = reads(RULES).expect
    assert rule.expectation == Expectation(
        kinds=(Kind.CRASH, Kind.HANG),
        signatures=("SIGSEGV@*",),
        when=(
            Condition("ucx", "<1.18"),
            Condition("capability", "no-large-bar"),
            Condition("stack", "openmpi-*"),
        ),
        issue="https://example.org/2",
        reason="known",
        fixed_in="1.20",
        remedy={"env": {"UCX_ZCOPY_THRESH": "0"}, "mca": {}},
        origin=Origin("m.yaml", 46),
        strict=False,
    )


def test_a_value_that_an_include_defines_can_be_named_again(reads: Reads) -> None:
    document = reads(RULES.replace("exclude:", "  - {placement: lone, transport: ob1, workload: send_recv}\nexclude:"))
    assert document.settings(("lone", "ob1", "send_recv")).nodes == ("cpu",)
    assert document.settings(("lone", "mine", "big")).transport.components() == ("ob1/sm",)


def test_words_name_cells_by_values_hardware_platform_family_and_kind(reads: Reads) -> None:
    document = reads(RULES)
    assert document.words_of("placement", "mixed") == ("mixed", "g4dn", "g4ad", "cuda", "rocm")
    assert document.words_of("transport", "ucx-tcp") == ("ucx-tcp", "ucx")
    assert document.words_of("workload", "send_recv") == ("send_recv",)
    for axis, value in (("placement", "lone"), ("transport", "mine"), ("transport", "ucx-posix"), ("workload", "big")):
        assert set(document.words_of(axis, value)) <= set(document.words())


def test_variables_are_written_out_in_values_only(reads: Reads) -> None:
    text = AWS.replace("aws-g4", "${SITE}-g4").replace("info", '"a${X}b$${X}c$X"')
    document = reads(text, SITE="lumi", X="1")
    assert document.name == "lumi-g4"
    assert document.hardware["g4ad"].env == {"UCX_LOG_LEVEL": "a1b${X}c$X"}


def test_what_is_free_needs_no_variables_unless_it_is_used(reads: Reads) -> None:
    assert reads("x-unused: ${NOWHERE}\n" + AWS)
    with pytest.raises(MatrixError) as caught:
        reads(AWS.replace("info", '"${NOWHERE}"'))
    assert caught.value.errors == (
        "m.yaml:4: environment variable 'NOWHERE' is not set; set it, or write $${NOWHERE} for the text itself",
    )


def test_a_file_without_a_name_is_named_by_its_file_name(tmp_path: Path) -> None:
    for stem, name in (
        ("aws", "aws"),
        ("my matrix (1)", "my-matrix-1-"),
        (".hidden", "hidden"),
        ("ü", "matrix"),
        ("x" * 200, "x" * 80),
    ):
        path = tmp_path / f"{stem}.yaml"
        path.write_text(AWS.replace("name: aws-g4\n", ""))
        assert read(path, {}).name == name


def test_the_document_knows_its_file_and_its_bytes(reads: Reads) -> None:
    document = reads(AWS)
    assert (document.file, document.sha256) == ("m.yaml", hashlib.sha256(AWS.encode()).hexdigest())


def test_a_matrix_may_come_through_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, AWS.encode())
    os.close(writer)
    try:
        document = read(Path(f"/dev/fd/{reader}"), {})
    finally:
        os.close(reader)
    assert document.sha256 == hashlib.sha256(AWS.encode()).hexdigest()
