"""Text from logs is made fit for XML, terminals and tables."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_hetgpu.store.text import TAIL_BYTES, clean, one_line, tail


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("plain", "plain"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("a\x00b\x08c\x7fd\x9be", "abcde"),
        ("1 %\r2 %\r\nend\x0b.", "1 %\n2 %\nend\n."),
        ("half \ud83d pair", "half  pair"),
        ("\ufffe\uffff", ""),
        ("turned \u202eback\u202c", "turned back"),
        ("kept: \t é 漢 \U0001f600 ]]> <b> &", "kept: \t é 漢 \U0001f600 ]]> <b> &"),
    ],
)
def test_what_no_report_can_hold_goes(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_cleaned_text_survives_xml(text: str) -> None:
    element = ET.Element("a")
    element.text = clean(text)
    assert (ET.fromstring(ET.tostring(element, encoding="utf-8")).text or "") == element.text


def test_one_line_is_one_short_line() -> None:
    assert one_line("a\n\n  b\tHF_TOKEN=abc\x1b[0m ") == "a b HF_TOKEN=[redacted]"
    assert one_line("x" * 1_000_000, 10) == "xxxxxxx..."


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_the_tail_is_the_last_forty_lines(tmp_path: Path) -> None:
    log = write(tmp_path / "log", b"".join(b"line %d\n" % i for i in range(100)))
    assert tail(log).split("\n") == [f"line {i}" for i in range(60, 100)]


def test_the_tail_of_a_short_log_is_all_of_it(tmp_path: Path) -> None:
    assert tail(write(tmp_path / "log", b"a\nb\n\n")) == "a\nb"


def test_the_tail_is_bounded_whatever_the_lines(tmp_path: Path) -> None:
    shown = tail(write(tmp_path / "log", b"x" * 1_000_000 + "é".encode() * 100_000 + b"end"))
    assert shown.endswith("éend")
    assert TAIL_BYTES - 4 <= len(shown.encode()) <= TAIL_BYTES


def test_the_tail_of_garbage_is_text(tmp_path: Path) -> None:
    assert tail(write(tmp_path / "log", b"\xff\xfe\x00\x1b[31mdied\n")) == "\ufffd\ufffddied"


def test_the_tail_holds_no_secret_even_one_that_began_before_it(tmp_path: Path) -> None:
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"MIIEowIBAAKCAQEA\n" * 60 + b"-----END RSA PRIVATE KEY-----\n"
    assert tail(write(tmp_path / "log", key + b"HF_TOKEN=abc done\n")) == "[redacted]\nHF_TOKEN=[redacted] done"


def test_no_log_has_no_tail(tmp_path: Path) -> None:
    assert tail(tmp_path / "none") == ""
    assert tail(tmp_path) == ""
