"""Whose a thing is, and whether they still run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_hetgpu.cluster.cleanup.owner import Owner, OwnerState, myself, parse, started, state_of

ME = myself("20260101-run")


def test_an_owner_is_read_back_from_its_text() -> None:
    assert parse(ME.text) == ME
    assert parse(ME.text).run == "20260101-run"  # type: ignore[union-attr]


def test_a_text_holds_nothing_that_a_shell_or_an_option_would_take_apart() -> None:
    odd = myself("a b/c'd\"$(e)\n%f=ü")
    assert set(odd.text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.@+-/")
    assert parse(odd.text) == odd


# Ids without the process: those of all workers must be equal.
@pytest.mark.parametrize(
    "text",
    ["", "x", ME.text + "/more", ME.text.replace("-1/", "-9/"), ME.text.replace("root", ""), "a/" * 11],
    ids=["empty", "short", "longer", "version", "no-user", "slashes"],
)
def test_what_is_no_such_text_has_no_owner(text: str) -> None:
    if text != ME.text:
        assert parse(text) is None


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a b", "`id`", "é"])
def test_a_label_that_somebody_forged_is_no_owner(hostile: str) -> None:
    assert parse(ME.text.replace("20260101-run", hostile)) is None


def test_we_live() -> None:
    assert state_of(ME) is OwnerState.LIVE


def test_a_process_that_ended_is_dead_and_so_is_one_that_nobody_has_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        theirs = replace(ME, pid=str(other.pid), start=started(other.pid) or "")
        assert state_of(theirs) is OwnerState.LIVE
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert state_of(theirs) is OwnerState.DEAD
    assert state_of(theirs) is OwnerState.DEAD


def test_a_number_that_is_another_process_now_is_not_taken_for_its_owner() -> None:
    assert state_of(replace(ME, start=str(int(ME.start) - 1))) is OwnerState.DEAD


def test_of_another_machine_or_another_namespace_nothing_is_known() -> None:
    assert state_of(replace(ME, machine="0" * 16)) is OwnerState.UNKNOWN
    assert state_of(replace(ME, namespace="1")) is OwnerState.UNKNOWN


def test_an_earlier_boot_is_over_but_only_where_the_machine_is_surely_this_one() -> None:
    earlier = replace(ME, boot="00000000-0000-0000-0000-000000000000", namespace="4026531836")
    outside = str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]"
    assert state_of(earlier) is (OwnerState.DEAD if outside else OwnerState.UNKNOWN)
    assert state_of(replace(earlier, namespace="4026532000")) is OwnerState.UNKNOWN


def test_another_users_process_is_seen_to_live() -> None:
    init = Owner(**{**{name: getattr(ME, name) for name in Owner.__slots__}, "pid": "1", "start": started(1) or "-"})
    assert state_of(init) is OwnerState.LIVE


def test_another_users_process_that_proc_does_not_show_may_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may be mounted with hidepid."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", refused)
    assert state_of(replace(ME, pid=str(2**22 + 1))) is OwnerState.UNKNOWN
