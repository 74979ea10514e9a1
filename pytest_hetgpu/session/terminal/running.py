"""The cells that are running now, in all processes, from their journals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.store.folder import RunFolder
from pytest_hetgpu.store.redaction.redact import LONGEST_KEY, redact, redact_unfinished
from pytest_hetgpu.store.text import one_line, without_commands

READY, WAITING, RUNNING, JUDGED = "its nodes are made ready", "waits for its hosts", "", "ended, is judged"
_END = 4096 + LONGEST_KEY
_LONGEST = 300
_FRAME = re.compile(r"@hetgpu:\d+:[0-9a-f]+:(\{.*\})")
_FIELDS = ("event", "epoch", "matrix", "scenario", "label", "why")
_KNOWN = frozenset(("planned", "waits", "started", "finished"))


@dataclass(frozen=True, slots=True)
class Running:
    """A cell and how far it is: `phase` is empty while its command runs, since `since` (seconds since 1970)."""

    label: str
    since: float
    phase: str = READY
    line: str = ""

    @property
    def told(self) -> str:
        """The activity of the cell: its last line of output, or its phase."""
        return self.phase or self.line


class RunningCells:
    """The running cells of one run folder. Events before `begun` belong to another session.

    `begin` and `end` report tests of this process; cells of other processes are found in their journals.
    """

    def __init__(self, run: Path, begun: float) -> None:
        self._folder = RunFolder(run)
        self._begun = begun
        self._read: dict[Path, int] = {}
        self._cells: dict[str, Running] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._gone: set[str] = set()
        self._seen: dict[str, tuple[int, str]] = {}

    def begin(self, label: str, now: float) -> None:
        """Record that the test of a cell begins."""
        self._gone.discard(label)
        self._cells.setdefault(label, Running(label, now))

    def end(self, label: str) -> None:
        """Record that the test of a cell has ended, whatever its journal holds."""
        self._gone.add(label)
        self._cells.pop(label, None)
        self._seen.pop(label, None)

    def now(self) -> list[Running]:
        """Return the running cells, the longest running first, each with the last line that it printed."""
        for event in self._news():
            self._take(event)
        found = [one if one.phase else replace(one, line=self._last(one.label)) for one in self._cells.values()]
        return sorted(found, key=lambda one: one.since)

    def _take(self, event: dict[str, Any]) -> None:
        identity, epoch = (str(event["matrix"]), str(event["scenario"])), float(event["epoch"])
        label = self._labels[identity] = str(event.get("label") or self._labels.get(identity, identity[1]))
        if label in self._gone or epoch < self._begun:
            return
        known = self._cells.get(label) or Running(label, epoch)
        if event["event"] == "waits":
            self._cells[label] = replace(known, phase=str(event["why"]) or READY)
        elif event["event"] == "planned":
            self._cells[label] = replace(known, phase=WAITING)
        elif event["event"] == "started":
            self._cells[label] = replace(known, since=epoch, phase=RUNNING)
        else:
            self._cells[label] = replace(known, phase=JUDGED)

    def _news(self) -> Iterator[dict[str, Any]]:
        """Yield the events since the last call. An incomplete line waits for its end."""
        for path in (self._folder.path / "journal").glob("*.jsonl"):
            at = self._read.get(path, 0)
            try:
                if path.stat().st_size <= at:
                    continue
                with path.open("rb") as file:
                    file.seek(at)
                    data = file.read()
            except OSError:
                continue
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = at + len(whole)
            for line in whole.splitlines():
                yield from _event(line)

    def _last(self, label: str) -> str:
        """Return the last line of a cell's output; read the file only if it has grown."""
        path = self._folder.raw(label)
        try:
            size = path.stat().st_size
            if self._seen.get(label, (-1, ""))[0] != size:
                with path.open("rb") as file:
                    file.seek(max(0, size - _END))
                    data = file.read(_END)
                    begun = data.find(b"\n") + 1 or size  # of a line that began before, nothing is shown
                    self._seen[label] = (size, last_line(data[begun:] if size > _END else data))
        except OSError:
            return ""
        return self._seen[label][1]


def last_line(data: bytes) -> str:
    """Return the last line with text, redacted together with the lines before it; records of ranks in words."""
    text = data.decode("utf-8", "surrogateescape")
    text = redact(text) if text.endswith("\n") else redact_unfinished(text)
    lines = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").splitlines()
    line = next((one for one in reversed(lines) if one.strip()), "")
    return without_commands(one_line(_FRAME.sub(_in_words, line), _LONGEST))


def _in_words(found: re.Match[str]) -> str:
    """Return `allreduce, 64K float32` for a measurement, and name and rank for another record."""
    try:
        data = json.loads(found[1])
        if data["t"] == "row":
            return f"measured {data['op']}, {show_size(int(data['size']))} {data['dtype']}"
        return f"rank {data['rank']}: {data['t']}"
    except (ValueError, TypeError, KeyError):
        return found[0]


def _event(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        data = json.loads(line)
        if (
            data["event"] in _KNOWN
            and isinstance(data["epoch"], int | float)
            and "matrix" in data
            and "scenario" in data
        ):
            yield {**{name: data[name] for name in _FIELDS if name in data}, "epoch": float(data["epoch"])}
    except (ValueError, TypeError, KeyError, OverflowError):
        return
