"""Secrets are found anywhere in a log, however it is read; other text stays."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction import log as redacted_log
from pytest_hetgpu.store.redaction import redact as redaction
from pytest_hetgpu.store.redaction.log import LogRedactor, contains_secrets, publish
from pytest_hetgpu.store.redaction.redact import redact, register_secrets
from pytest_hetgpu.store.redaction.rules import REDACTED
from pytest_hetgpu.store.redaction.secret_values import is_distinctive
from tests.reporting.report_samples import job
from tests.reporting.test_fifty_secrets import KINDS

VALUE = "zebra7/cross+ing=x"
SMALL = 1 << 10
ENCODED = [
    VALUE,
    quote(VALUE, safe=""),
    json.dumps(f"a\n{VALUE}")[1:-1],
    *(base64.b64encode(f"{before}{VALUE}".encode()).decode() for before in ("", "x", "me")),
    *(base64.urlsafe_b64encode(f"{before}{VALUE}:y".encode()).decode() for before in ("", "x", "me")),
]
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA7bq9\n" * 20 + "-----END RSA PRIVATE KEY-----"
TEXTS = [*(text for text, _ in KINDS.values()), f"before {PEM} after", *(f"<{one}>" for one in ENCODED)]
FORBIDDEN = [*(secret for _, secret in KINDS.values()), "MIIEowIBAAKCAQEA7bq9", *ENCODED]
NOISE = [
    "[host:1:0] ucp_ep.c:12 DEBUG rkey=0x5\n",
    "\n",
    "\0\xff\n",
    "x" * 300 + "\n",
    "1024 3.14 float32\n",
    "\x1b[31m red\x1b[0m\n",
]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    register_secrets({"MY_TOKEN": VALUE})
    yield
    redaction.clear_secrets()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the blocks, so that short test data spans many of them."""
    monkeypatch.setattr(redacted_log, "BLOCK", SMALL)
    monkeypatch.setattr(redacted_log, "_CUT_CONTEXT", 1 << 10)


def through(data: bytes, sizes: list[int]) -> bytes:
    redactor, out, place = LogRedactor(), b"", 0
    for size in (*sizes, len(data)):
        out += b"".join(text for _, text in redactor.feed(data[place : place + size]))
        place += size
    return out + b"".join(text for _, text in redactor.finish())


LINES = st.lists(st.sampled_from([f"{text}\n" for text in TEXTS] + NOISE * 8), max_size=60)


@settings(max_examples=60, deadline=None)
@given(LINES.map("".join), st.lists(st.integers(1, 3000), max_size=20))
def test_secrets_anywhere_are_found_however_it_is_read(text: str, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redacted_log, "BLOCK", SMALL)
        patch.setattr(redacted_log, "_CUT_CONTEXT", SMALL)
        data = text.encode("latin-1", "replace")
        out = through(data, sizes)
        assert [secret for secret in FORBIDDEN if secret.encode() in out] == []
        assert out == through(data, [])
        assert through(out, sizes) == out


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ENCODED), st.text(max_size=40), st.text(max_size=40))
def test_a_known_value_is_found_within_any_text(value: str, before: str, after: str) -> None:
    once = redact(f"{before}{value}{after}")
    assert value not in once
    assert redact(once) == once


SALT = "".join(chr(33 + place * 37 % 94) for place in range(300))
SALTED = f"zebra {SALT}"


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([VALUE, SALTED]),
    st.binary(max_size=80),
    st.binary(max_size=80),
    st.integers(3, 120),
    st.sampled_from(["\n", "\r\n", "\n    ", "\\n", "\\\\n"]),
    st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]),
)
def test_base64_is_found_at_whichever_column_it_is_wrapped(
    value: str, before: bytes, after: bytes, width: int, end: str, encode: Callable[[bytes], bytes]
) -> None:
    register_secrets({"LONG_TOKEN": SALTED})
    text = encode(before + value.encode() + after).decode()
    wrapped = end.join(text[place : place + width] for place in range(0, len(text), width))
    first, last = -(-len(before) * 4 // 3), (len(before) + len(value)) * 4 // 3
    for left in (redact(wrapped), through(f"token= {wrapped}\n".encode(), []).decode()):
        assert text[first:last] not in left.replace(end, "")
        assert REDACTED in left


def test_a_long_key_costs_no_more_than_another_value(capfd: pytest.CaptureFixture[str]) -> None:
    lines = [base64.b64encode(hashlib.sha512(b"%d" % place).digest())[:70].decode() for place in range(60)]
    register_secrets({"SSH_PRIVATE_KEY": "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines])})
    noise = "".join(f"[host:{place}:0] ucp_ep.c:12 size {place} password {place / 7}\n" for place in range(2000))
    assert redact(noise) == noise
    assert redact(f"{noise}{lines[7]}\n{noise}") == f"{noise}{REDACTED}\n{noise}"
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("small_blocks")
def test_a_key_over_many_pieces_goes_and_what_follows_stays() -> None:
    lines = b"a line of output\n" * 200
    data = lines + PEM.encode() + b"\n" + lines
    assert through(data, []) == lines + REDACTED.encode() + b"\n" + lines


def test_a_word_without_an_end_does_not_swallow_the_log() -> None:
    lines = b"a line of output\n" * 5000
    data = b"-----BEGIN RSA PRIVATE KEY-----\n" + lines
    assert through(data, []).endswith(lines)


def test_what_is_clean_is_moved_and_kept_as_it_is(tmp_path: Path) -> None:
    raw, log = tmp_path / "raw", tmp_path / "log"
    data = b"\0\xff\x80 binary\r\n" * 200_000
    raw.write_bytes(data)
    number = raw.stat().st_ino
    assert not publish(raw, log)
    assert (log.stat().st_ino, raw.exists(), log.read_bytes() == data) == (number, False, True)


def test_what_somebody_may_still_write_to_is_copied(tmp_path: Path) -> None:
    raw, log = tmp_path / "raw", tmp_path / "log"
    raw.write_bytes(b"clean\n")
    with raw.open("ab") as writer:
        assert not publish(raw, log, ended=False)
        writer.write(b"password=hunter2xyz\n")
    assert log.read_bytes() == b"clean\n"


def test_the_raw_log_is_private_and_the_other_in_its_place(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    label = job().label
    data = b"first\n" * 300_000 + b"password=hunter2xyz\nlast\n"
    folder.start_log(label).write_bytes(data)
    folder.publish(label)
    assert folder.log(label).read_bytes() == data.replace(b"hunter2xyz", REDACTED.encode())
    assert folder.raw(label) == tmp_path / "reports/.private" / folder.path.name / f"{label}.log"
    assert folder.raw(label).read_bytes() == data
    assert stat.S_IMODE(folder.private.stat().st_mode) == stat.S_IMODE(folder.private.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.log(label).stat().st_mode) == 0o600
    assert folder.count_raw_logs() == 1
    folder.remove_empty_folders()
    assert folder.raw(label).exists()


def test_a_run_without_secrets_leaves_no_private_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    folder.start_log("a").write_bytes(b"clean\n")
    folder.publish("a")
    folder.remove_empty_folders()
    assert not folder.private.parent.exists()


def test_raw_logs_go_with_their_attempts_and_parts(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    first = folder.for_attempt("attempt-1")
    folder.start_log("a").write_bytes(b"password=hunter2xyz\n")
    folder.publish("a")
    folder.move_attempt("a", first)
    assert (first.raw("a").exists(), first.log("a").exists(), folder.raw("a").exists()) == (True, True, False)
    folder.start_log("a").write_bytes(b"password=hunter3xyz\n")  # and killed
    folder.archive_raw_logs("a", "part-0")
    assert folder.for_attempt("part-0/attempt-1").raw("a").read_bytes() == b"password=hunter2xyz\n"
    assert folder.for_attempt("part-0").raw("a").read_bytes() == b"password=hunter3xyz\n"
    assert folder.log("a").read_bytes() == b"password=[redacted]\n"
    folder.remove_attempts("a")
    assert not folder.raw("a").exists()


def test_a_log_of_an_earlier_version_is_redacted_when_it_is_judged_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "reports")
    folder.prepare("a").write_bytes(b"password=hunter2xyz\n")
    assert contains_secrets(folder.log("a"))
    folder.redact_again("a")
    assert folder.log("a").read_bytes() == b"password=[redacted]\n"
    assert folder.raw("a").read_bytes() == b"password=hunter2xyz\n"


@pytest.mark.parametrize(
    "value",
    ["1", "true", "disabled", "password", "1048576", "/root/.ssh/key", "~/.aws/credentials", "./key.pem", "abc",
     "------", "kerberos", "C:\\keys\\a.pem", "[redacted]", "passed", "0xdeadbeef"],
)  # fmt: skip
def test_what_is_harmless_by_nature_is_not_looked_for(value: str) -> None:
    assert not is_distinctive(value)
    register_secrets({"SOME_TOKEN": value})
    assert redact(f"see {value} here") == f"see {value} here"


@pytest.mark.parametrize("value", ["hunter2secret", "/bPxRfiCYEXAMPLEKEY1a", "correct horse", "p&ss/w0rd"])
def test_what_is_distinctive_is(value: str) -> None:
    register_secrets({"SOME_TOKEN": value})
    assert redact(f"ip-{value}.example.com") == f"ip-{REDACTED}.example.com"


def test_the_name_of_a_place_says_nothing_of_its_value() -> None:
    register_secrets({"TOKEN_URL": "https://issuer.example.com", "KEY_FILE": "some-file-name"})
    assert redact("https://issuer.example.com some-file-name") == "https://issuer.example.com some-file-name"


def test_a_password_in_a_variables_url_is_known_by_itself() -> None:
    register_secrets({"DATABASE": "postgres://me:dragonfly9@db/x"})
    assert redact("login of dragonfly9") == f"login of {REDACTED}"


def test_a_value_that_is_no_utf_8_is_found(tmp_path: Path) -> None:
    value = os.fsdecode(b"secr\xffetvalue")
    register_secrets({"MY_TOKEN": value, "OTHER_TOKEN": "half\ud800ofapair"})
    assert redact(f"see {value} here, {'half' + chr(0xD800) + 'ofapair'}") == f"see {REDACTED} here, {REDACTED}"
    assert redact("see secr%FFetvalue here") == f"see {REDACTED} here"
    raw, log = tmp_path / "raw", tmp_path / "log"
    raw.write_bytes(b"it is secr\xffetvalue\n")
    assert publish(raw, log)
    assert log.read_bytes() == b"it is [redacted]\n"


LONG = "".join(f"{number:03}a{chr(97 + number % 26)}" for number in range(120))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"'{LONG[:117]}...{LONG[-118:]}' == ''", f"'{REDACTED}...{REDACTED}' == ''"),
        (f"{{'a': '{LONG[:6]}...{LONG[-12:]}'}}", f"{{'a': '{REDACTED}...{REDACTED}'}}"),
        (f"cut after {LONG[:200]}", f"cut after {REDACTED}"),
        (f"{LONG[-33:]} is its end", f"{REDACTED} is its end"),
        (f"{LONG} and {LONG[:50]}", f"{REDACTED} and {REDACTED}"),
        (f"{LONG[:20]} is too short", f"{LONG[:20]} is too short"),
        (f"...{LONG[6:18]}... is of neither end", f"...{LONG[6:18]}... is of neither end"),
        (base64.b64encode(LONG.encode()).decode()[:70], REDACTED),
    ],
)  # fmt: skip
def test_what_is_left_of_a_long_value_is_found(text: str, shown: str) -> None:
    register_secrets({"LONG_TOKEN": LONG, "OTHER_TOKEN": f"{LONG[:40]}{'z' * 80}"})
    assert redact(text) == shown
    assert redact(shown) == shown
