"""Signals as an orderly stop."""

from __future__ import annotations

import os
import signal

import pytest

from pytest_hetgpu.interruption import OrderlyStop, postponed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_an_interrupt_with_its_name(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = OrderlyStop()
    stop.install()
    try:
        with pytest.raises(KeyboardInterrupt, match=number.name):
            os.kill(os.getpid(), number)
    finally:
        stop.restore()
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = OrderlyStop()
    try:
        stop.install()
        os.kill(os.getpid(), signal.SIGHUP)
        stop.restore()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_postponed_signal_takes_effect_at_the_end() -> None:
    stop, reached = OrderlyStop(), []

    def interrupted() -> None:
        with postponed():
            os.kill(os.getpid(), signal.SIGTERM)
            reached.append("the end")

    stop.install()
    try:
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            interrupted()
    finally:
        stop.restore()
    assert reached == ["the end"]
