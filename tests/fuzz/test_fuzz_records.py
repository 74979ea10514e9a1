"""What ranks report, changed in any way on its way through launchers: it is believed whole, or counted as damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs.records import LARGEST_NUMBER, RecordReader, Records
from tests.analysis.logs.test_records import EVERY, frame, line
from tests.fuzz.fuzzing import bounded, cases, damaged, fuzz, harmless

DEVICE = {"t": "device", "rank": 0, "index": 0, "name": "x", "arch": "gfx1011", "memory": 1, "peak": 1}
FIGURE = {"t": "figure", "rank": 0, "metric": "loss", "value": 1, "unit": "", "size": 0, "dtype": "none", "ranks": 2}
MORE = [DEVICE, FIGURE, {"t": "lacks", "rank": 0, "what": "a", "how": "b"}, {"t": "carried", "rank": 0, "by": "tcp"}]
NAMES = sorted({name for record in (*EVERY, *MORE) for name in record} | {"at"})
STREAM = b"\n".join([b"[1,0]<stdout>:" + line(one) for one in (*EVERY, *MORE)] * 2)
WORDS = [
    b"@hetgpu:",
    b"@hetgpu:0021:09862b74:",
    b"@hetgpu:4000:00000000:",
    b"@hetgpu:9999:",
    *map(line, EVERY),
    *map(line, MORE),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63, 2**64, -1, 0, 10**30]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["\x1b[2J", "\u202e", "\n", "</script>", "a" * 3000]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Whole frames of records whose fields hold anything."""
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        record = dict(draw(st.sampled_from([*EVERY, *MORE])))
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
            record[name] = draw(values)
        payload = json.dumps(record).encode("ascii")
        lines.append(frame(payload)[:9000])
    return b"\n".join(lines)


def read(data: bytes) -> Records:
    reader = RecordReader()
    for one in data.split(b"\n"):
        reader.feed(one)
    return reader.finish()


def check(data: bytes) -> None:
    found = read(data)
    assert read(data) == found
    for rank, hello in found.hellos.items():
        assert 0 <= rank == hello.rank < hello.size <= LARGEST_NUMBER
        harmless(f"{hello.host}{hello.library}{hello.libmpi}")
    for at in (*found.ended.values(), *(hello.at or 0 for hello in found.hellos.values()), found.last_row or 0):
        assert 0 <= at < float("inf")
    for row in found.rows:
        assert 0 < row.seconds < float("inf")
        harmless(f"{row.operation}{row.point}")
    for text in (*found.wrong, *found.lacks, *found.carried, *found.versions, *found.versions.values()):
        harmless(text)
    for device in found.devices:
        harmless(f"{device.name}{device.arch}")
    for figure in found.figures:
        assert abs(figure.value) < float("inf")
        harmless(f"{figure.metric}{figure.unit}")


@pytest.mark.slow
def test_streams() -> None:
    fuzz(damaged([STREAM], WORDS), check)


def test_fields() -> None:
    fuzz(records(), check)


@pytest.mark.parametrize("case", cases("records"), ids=lambda path: path.name)
def test_what_was_found(case: Path) -> None:
    with bounded():
        check(case.read_bytes())
