"""Errors of UCC, and its status in the words of those that call it."""

# ruff: noqa: E501 - log lines are as long as they are

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import kind_and_key, matches, parse_all

LINE = "[1795178698.610380] [node1:178  :0] tl_ucp_sendrecv.c:105  "
DONE = "TL_UCP ERROR failure in recv completion Message truncated"


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        (LINE + "UCC  ERROR no tl contexts were created", "transport_unavailable no-transport@ucc"),
        (LINE + "CL_BASIC ERROR no TL contexts are available", "transport_unavailable no-transport@ucc"),
        (LINE + "UCC  ERROR no suitable executor available for memory type rocm", "transport_unavailable no-transport@ucc"),
        ("ucc_context_create(lib,&cp,cc,&cx) failed: Not found (-7)", "transport_unavailable Not-found@ucc_context_create"),
        ("ucc_team_create_test failed with Out of memory", "out_of_memory Out-of-memory@ucc_team_create_test"),
        ("ucc_collective_test: Timeout expired", "timeout Timeout-expired@ucc_collective_test"),
        ("ucc_init failed: Invalid parameter", "error Invalid-parameter@ucc_init"),
    ],
)  # fmt: skip
def test_text(text: str, read_as: str) -> None:
    assert kind_and_key(matches("ucc", text)[0]) == read_as


@pytest.mark.parametrize(
    "text",
    [
        LINE + "TL_CUDA ERROR failed to initialize tl_cuda_topo",
        LINE + "TL_UCP ERROR failure in recv completion Request canceled",
        LINE + "CL_BASIC WARN  tl rccl is not available",
        "[1.2] [node1:49   :0] ucc_coll_score_map.c:225  UCC  INFO  \tHost: {0..inf}:TL_UCP:10",
        "[node1:1] Error: coll_ucc_module.c:340 - mca_coll_ucc_init_ctx() UCC context create failed",
        "ucc_context_create took 3 s",
    ],
)
def test_text_that_is_no_failure(text: str) -> None:
    assert matches("ucc", text) == []


def test_data_that_did_not_arrive_is_certain_and_a_layer_that_did_not_start_is_not() -> None:
    assert [matches("ucc", LINE + text)[0].fatal for text in (DONE, "UCC  ERROR no tl contexts were created")] == [
        True,
        False,
    ]


def test_the_core_says_more_than_the_program_that_called_it() -> None:
    text = f"{LINE}UCC  ERROR no tl contexts were created\n[rank 0] ucc_context_create(l) failed: Not found (-7)"
    first, second = parse_all(text, "ucc")
    assert (first.line, first.hosts, second.entry_point) == (1, ("node1",), "ucc_context_create")
    assert [match.priority for match in matches("ucc", text)] == [Priority.CAUSE, Priority.RELAYED]
