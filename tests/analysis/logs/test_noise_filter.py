"""Noise is skipped by the block, with the same result as line by line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_hetgpu.analysis.logs import noise_filter as module
from pytest_hetgpu.analysis.logs import scan
from pytest_hetgpu.analysis.logs.scan import Scan, ScannedLine, Subscription

UNHEARD = (b"DEBUG", b"<trace>", b"U TRACE")
LONGEST = 40
MOST_BETWEEN = 5


@pytest.fixture(params=["re2", "re"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, lacking: Callable[[str, str], None]
) -> Iterator[None]:
    """Run with RE2, and as if it were not installed."""
    if request.param == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    elif importlib.util.find_spec("re2") is None:
        lacking("re2", "google-re2 is not installed")
    module._row.cache_clear()
    yield
    module._row.cache_clear()


@dataclass
class Listener:
    """Subscription to `words` with `context` further lines, `left` of them still to come."""

    words: Sequence[bytes]
    context: int
    heard: list[tuple[int, bytes]] = field(default_factory=list)
    left: int = 0

    def subscription(self) -> Subscription:
        return Subscription(self.words, lambda line: self.heard.append((line.number, line.raw)), self.context)

    def defined(self, pieces: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Return the lines to be fed, by the definition."""
        heard, left, passed = [], 0, 0
        for number, piece in pieces:
            if any(word in piece for word in UNHEARD):
                passed += 1
                left = 0 if passed > MOST_BETWEEN else left
                continue
            passed = 0
            if any(word in piece for word in self.words):
                left = self.context + 1
            if left:
                heard.append((number, piece))
                left -= 1
        return heard


def pieces_of(data: bytes) -> list[tuple[int, bytes]]:
    """Yield the pieces between line ends, cut at the length limit, with line numbers."""
    between = [
        (number, piece) for number, line in enumerate(data.split(b"\n"), 1) for piece in line.split(b"\r") if piece
    ]
    return [(number, piece[at : at + LONGEST]) for number, piece in between for at in range(0, len(piece), LONGEST)]


WORDS = [
    b"1",
    b"0xaf",
    b"DEBUG",
    b"<trace>",
    b"U TRACE",
    b"EBUG",
    b"needle",
    b"pin",
    b" ",
    b"\0",
    b"x" * 15,
    b"U",
    b"\xff",
]
ENDS = [b"\n", b"\n", b"\n", b"\r", b"\r\n", b"\n\n"]
LOGS = st.lists(st.sampled_from([*WORDS, *ENDS]), max_size=80).map(b"".join)


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(LOGS, st.integers(1, 200))
def test_everybody_hears_what_the_definition_says(data: bytes, chunk: int) -> None:
    listeners = Listener((b"needle",), 3), Listener((b"pin", b"nee"), 0), Listener((b"x",), 100)
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(scan, "CHUNK", chunk)
        patch.setattr(scan, "LONGEST_LINE", LONGEST)
        patch.setattr(scan, "_MOST_BETWEEN", MOST_BETWEEN)
        path = Path(folder) / "a.log"
        path.write_bytes(data)
        reader = Scan([listener.subscription() for listener in listeners], UNHEARD)
        reader.file(path)
    for listener in listeners:
        assert listener.heard == listener.defined(pieces_of(data))
    assert reader.lines == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(LOGS)
def test_colours_hide_no_word(data: bytes) -> None:
    coloured = data.replace(b"DEBUG", b"\x1b[1mDE\x1b[0mBUG").replace(b"needle", b"nee\x1b[Kdle")
    plain, told = Listener((b"needle",), 2), Listener((b"needle",), 2)
    with TemporaryDirectory() as folder:
        for listener, log in ((plain, data), (told, coloured)):
            path = Path(folder) / "a.log"
            path.write_bytes(log)
            Scan([listener.subscription()], UNHEARD).file(path)
    assert [number for number, _ in told.heard] == [number for number, _ in plain.heard]


@pytest.mark.usefixtures("engine")
def test_numbers_stay_right_behind_long_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    row = b"[1] UCX DEBUG needle that nobody hears, of some length to fill the window of a search\n" * 3000
    path.write_bytes(row + b"\r\nneedle 1\r\n" + row.replace(b"\n", b"\r\n") + b"needle 2\n" + row + b"DEBUG needle")
    lines: list[ScannedLine] = []
    reader = Scan([Subscription((b"needle",), lines.append, 2)], UNHEARD)
    reader.file(path)
    assert [(line.number, line.raw) for line in lines] == [(3002, b"needle 1"), (6003, b"needle 2")]
    assert reader.lines == 9004


@pytest.mark.usefixtures("engine")
def test_an_endless_line_of_nobodys_is_nobodys_by_the_piece(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"DEBUG " + b"x" * 200_000 + b" needle\nneedle\n")
    lines: list[ScannedLine] = []
    Scan([Subscription((b"needle",), lines.append)], UNHEARD).file(path)
    assert [(line.number, line.raw[-7:]) for line in lines] == [(1, b" needle"), (2, b"needle")]
