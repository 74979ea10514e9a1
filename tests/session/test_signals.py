"""Signals as an orderly stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_hetgpu.session.signals import GracefulShutdown, deferred, running
from pytest_hetgpu.store.journal import Journal
from tests.reporting.report_samples import PASSED, job, result


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """Whoever runs these tests with nohup has SIGHUP ignored, in the background SIGINT."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_interrupt_with_its_name(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = GracefulShutdown()
    stop.install()
    try:
        with pytest.raises(KeyboardInterrupt, match=number.name):
            os.kill(os.getpid(), number)
    finally:
        stop.restore()
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = GracefulShutdown()
    try:
        stop.install()
        os.kill(os.getpid(), signal.SIGHUP)
        stop.restore()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def stop() -> Iterator[GracefulShutdown]:
    """Installed, and Ctrl-C as Python has it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    stop = GracefulShutdown()
    stop.install()
    yield stop
    stop.restore()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("stop")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_postponed_signal_takes_effect_at_the_end(number: signal.Signals) -> None:
    reached = []

    def interrupted() -> None:
        with deferred():
            with deferred():
                os.kill(os.getpid(), number)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    assert (caught.value.args, reached) == ((number.name,), ["the end"])
    assert caught.exconly() == f"Interrupted: stopped by {number.name}"
    with deferred():
        reached.append("once")


@pytest.mark.usefixtures("stop")
def test_a_signal_that_another_thread_gets_is_postponed_too() -> None:
    reached, done = [], threading.Event()
    news, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told)
    other = threading.Thread(target=done.wait)
    other.start()

    def interrupted() -> None:
        with deferred():
            assert other.ident is not None
            signal.pthread_kill(other.ident, signal.SIGTERM)
            assert os.read(news, 1) == bytes([signal.SIGTERM])
            reached.append("the end")

    try:
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            interrupted()
    finally:
        signal.set_wakeup_fd(before)
        done.set()
        other.join()
        os.close(news)
        os.close(told)
    assert reached == ["the end"]


def test_what_runs_is_what_writers_that_live_have_begun(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "gw0")) as journal:
        journal.started(job("a"))
        assert running(tmp_path, 0) == {os.getpid()}
        journal.finished(job("a"), result())
        assert running(tmp_path, 0) == set()
        journal.started(job("b"))
        journal.path.write_bytes(journal.path.read_bytes() + b'{"event": "fini')
        assert running(tmp_path, 0) == {os.getpid()}
    assert running(tmp_path, 0) == set(), "by now the number may be anybody's"


def test_what_an_earlier_part_left_in_flight_is_nobody_s_any_more(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "gw0")) as journal:
        journal.started(job("a"))
    with closing(Journal(tmp_path, "gw0", 1)) as journal:
        assert running(tmp_path, 1) == set()
        journal.started(job("b"))
        assert running(tmp_path, 1) == {os.getpid()}
        journal.judged(job("b"), PASSED)
        assert running(tmp_path, 1) == set()


def test_a_cell_that_waits_for_a_host_is_in_flight(tmp_path: Path) -> None:
    with closing(Journal(tmp_path, "gw0")) as journal:
        journal.waiting(job("a"), "waits for host gpu1")
        assert running(tmp_path, 0) == {os.getpid()}
        journal.waiting(job("a"), "")
        assert running(tmp_path, 0) == set()
