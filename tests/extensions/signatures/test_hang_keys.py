"""Keys of hangs: the same however the ranks of one hang were seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.extensions.signatures.engine.stacks import (
    Position,
    StackFrame,
    facts,
    parse_facts,
    position_of,
    summarize,
)

LIBMPI, PAL, MPI4PY = "/opt/mpi/lib/libmpi.so.40", "/opt/mpi/lib/libopen-pal.so.80", "mpi4py/MPI.cpython-311.so"
IMPORT = "<frozen importlib._bootstrap>"
OWN = "/site-packages/pytest_hetgpu/remote/harness.py"
INNER = st.lists(
    st.sampled_from(
        [
            StackFrame("opal_progress", PAL),
            StackFrame("poll", "/lib/libc.so.6"),
            StackFrame("clock_nanosleep", "/lib/libc.so.6"),
            StackFrame("ompi_request_default_wait", LIBMPI),
            StackFrame("mca_btl_tcp_component_progress", "/opt/mpi/lib/mca_btl_tcp.so"),
            StackFrame("PMIx_Fence", "/opt/mpi/lib/libpmix.so.2"),
            StackFrame("0x7f11"),
        ]
    ),
    max_size=5,
)
CALL = [StackFrame("PMPI_Init_thread", LIBMPI), StackFrame("__pyx_pymod_exec_MPI", MPI4PY)]
IMPORTING = [
    [StackFrame("_call_with_frames_removed", file=IMPORT, line=241, python=True)],
    [StackFrame("<module>", file=OWN, line=37, python=True)],
    [StackFrame("<module>", file="/tmp/hetgpu-0a1b2c3d/programs/harness.py", line=37, python=True)],
    [StackFrame("emit_hello", file=OWN, line=150, python=True), StackFrame("main", file=OWN, line=62, python=True)],
    [StackFrame("_run_code", file="/usr/lib/python3.11/runpy.py", line=86, python=True)],
]


@st.composite
def views(draw: st.DrawFn) -> Position:
    """A rank in MPI_Init, as one look may see it: whole, without native frames, cut off, by the kernel, not at all."""
    outer = draw(st.sampled_from(IMPORTING))
    inner = draw(INNER)
    seen = draw(st.sampled_from(["whole", "python", "broken", "kernel", "unseen"]))
    if seen in ("whole", "python"):
        return position_of([*inner, *CALL, *outer] if seen == "whole" else outer)
    if seen == "broken":
        return position_of([*inner, StackFrame("0x20369968"), *outer])
    return Position(doing="poll", shallow=True) if seen == "kernel" else Position(state="unseen")


@given(st.lists(views(), min_size=1, max_size=6), st.data())
def test_one_hang_has_one_key_however_it_is_seen(seen: list[Position], data: st.DataObject) -> None:
    whole = position_of([*data.draw(INNER), *CALL, *data.draw(st.sampled_from(IMPORTING))])
    ranks = data.draw(st.permutations([*seen, whole]))
    again = [parse_facts(Position(rank=rank), facts(one)) for rank, one in enumerate(ranks)]
    assert summarize(again).key == "stuck@Init_thread"
    assert summarize(ranks).key == "stuck@Init_thread"


@pytest.mark.parametrize("outer", IMPORTING)
def test_neither_import_machinery_nor_programs_of_this_package_are_places(outer: list[StackFrame]) -> None:
    assert summarize([position_of(outer)]).key == "stuck"
    assert position_of(outer).word == ""


@pytest.mark.parametrize(
    "said",
    ["in=harness.py at=harness.py:37", "in=call_with_frames_removed", "in=emit_hello at=harness.py:150 doing=poll"],
)
def test_lines_of_earlier_releases_have_the_same_key(said: str) -> None:
    called = parse_facts(Position(rank=0), "call=PMPI_Init_thread lib=libmpi.so.40 at=harness.py:37")
    assert summarize([called, parse_facts(Position(rank=1), said)]).key == "stuck@Init_thread"


def test_users_frames_count_if_no_rank_was_seen_inside() -> None:
    python = [StackFrame("load", file="/home/me/data.py", line=8, python=True)]
    slept = [StackFrame("clock_nanosleep", "/lib/libc.so.6"), *python]
    called = position_of([*CALL, *python])
    assert summarize([position_of(python)]).key == "stuck@load"
    assert summarize([called, position_of(python)]).key == "stuck@Init_thread"
    assert summarize([called, position_of(slept)]).key == "stuck@Init_thread+load"
