"""ucx_perftest: the tables and CSV lines of its client.

Formats: src/tools/perf/perftest_run.c (`print_progress`, `print_header`, `print_test_name`), perftest.c (`tests`: those
with an overhead instead of a latency) and lib/libperf.c (`ucx_perf_calc_result`) of UCX 1.13 to 1.20; perftest.c of
1.8.

MB/s are 1048576 bytes per second here. Latencies are half of a round trip if the test is a ping-pong. In a table only
`overall` of the last row counts. The rows before it, and the columns `average`, are of the last second. A missing
`Final:` row means that the test did not end. Only the server prints sizes and the test's name, so the parser takes them
from the command. Nothing is checked without `-V`, which prints only errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.extensions.output_patterns import ReaderSettings
from pytest_hetgpu.extensions.readers.base import LONGEST_LINE, OutputParser, ParseRequest, number, quoted, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_BOX = re.compile(r"\| (API|Test|Send memory|Recv memory|Message size):\s+(.*?)\s*\|")
_KIND = re.compile(r"\|\s+\|(?:\s+\|)?\s+(latency|overhead) \(usec\)\s+\|")
_COLUMNS = re.compile(r"\|(?:\s+(?P<first>Stage|Test)\s+\|)? # iterations \|\s+(?P<percentile>[\d.]+%ile|typical) \|")
_CSV = re.compile(
    r"(?P<names>(?:[^,]+,)*?)iterations,(?P<percentile>[\d.]+_percentile|typical)_lat,avg_lat,overall_lat,"
)
_BATCH = re.compile(r"\+([A-Za-z0-9_./]+)-[-+]*\+")
_STAGE = re.compile(r"\[thread \d+\]\s*")
_INVALID = "data validation failed"

_MEBI = 1048576 / 1e9
_LATENCY_TESTS = ("get", "fadd", "swap", "cswap", "ucp_get", "ucp_fadd", "ucp_swap", "ucp_cswap")
_OPERATIONS = (
    ("tag", "send_recv"),
    ("stream", "send_recv"),
    ("am", "active_message"),
    ("active message", "active_message"),
)
# glibc's getopt prints it.
_NO_CHECK = "invalid option -- 'V'"


class UcxPerftestParser(OutputParser):
    """A parser with one row per completed test."""

    tool = "ucx_perftest"
    prints = {"overhead": "us", "bandwidth": "GB/s", "message_rate": "1/s"}

    def __init__(self, asked: ParseRequest | None = None, settings: ReaderSettings | None = None) -> None:
        super().__init__(asked, settings)
        self._box: dict[str, str] = {}
        self._kind = ""
        self._percentile = ""
        self._csv = 0
        self._staged = False
        self._header = 0
        self._batch = ""
        self._latest: tuple[list[str], int, bool] | None = None
        self._invalid = ""
        self._unsupported = ""

    @classmethod
    def measures(cls, asked: ParseRequest) -> str:
        return asked.operation or _operation(asked.option("-t")) or cls.tool

    def feed(self, line: str, number: int = 0) -> None:
        text = line[:LONGEST_LINE].strip()
        if not text:
            return
        if found := _BOX.match(text):
            self._box[found[1]] = found[2]
        elif found := _KIND.match(text):
            self._close()
            self._kind = found[1]
        elif found := _COLUMNS.match(text):
            self._open(found["percentile"].removesuffix("%ile"), number, staged=found["first"] == "Stage")
        elif found := _CSV.match(text):
            self._close()
            self._open(found["percentile"].removesuffix("_percentile"), number, csv=found["names"].count(",") + 1)
        elif found := _BATCH.match(text):
            self._close()
            self._batch = found[1]
        elif _INVALID in text:
            self._invalid = text[:200]
        elif _NO_CHECK in text and "-V" in self.request.argv:
            self._unsupported = "option -V, which checks the data (with `check: false` only numbers are required)"
        elif self._header:
            self._row(text, number)

    def finish(self) -> BenchmarkResult:
        self._close()
        if self._header or not self._box:
            self.require_rows(self._header)
        else:
            self.warnings.add("the server's output alone: the client prints the figures")
        memory = " to ".join(dict.fromkeys(filter(None, (self._box.get("Send memory"), self._box.get("Recv memory")))))
        failed = (self._invalid,) if self._invalid else ()
        return BenchmarkResult(
            self.tool, "", self.rows, self.warnings.texts, failed, memory=memory, unsupported=self._unsupported
        )

    def _open(self, percentile: str, line: int, *, staged: bool = False, csv: int = 0) -> None:
        self._percentile = "p50" if percentile == "typical" else f"p{percentile.removesuffix('.0')}"
        self._header, self._staged, self._csv = line or 1, staged, csv

    def _row(self, text: str, line: int) -> None:
        stage = _STAGE.match(text)
        bare = text[stage.end() :] if stage else text
        ended = bare.startswith("Final:")
        tokens = bare.removeprefix("Final:").split(",") if self._csv else bare.removeprefix("Final:").split()
        names = max(self._csv - 1, 0)
        # `-f` prints the test's name first. Only a batch has names.
        if not self._csv and tokens and not _like_number(tokens[0]):
            names = 1
        numbers = [token if self._csv else token.replace(",", "") for token in tokens[names:]]
        while len(numbers) > 4 and not _like_number(numbers[-1]):  # columns of `-X`
            numbers.pop()
        if not numbers or not all(map(_like_number, numbers)):
            return
        if len(numbers) not in (4, 8):
            self.warnings.add(f"a row of {len(numbers)} figures, not of 8, or 4 of several threads", line)
            return
        if names:
            self._batch = "/".join(tokens[:names])
        self._latest = (numbers, line, ended or not (stage or self._staged))
        if (self._csv and not stage) or (ended and not self._csv):
            self._close()

    def _close(self) -> None:
        """Keep the last row of a test."""
        if self._latest is None:
            return
        (numbers, line, ended), self._latest = self._latest, None
        if not ended:
            self.warnings.add("the test did not end: its rows are of its first seconds", line)
            return
        if self._batch:
            # The header fits none of the tests, and their sizes are in the batch file.
            self.warnings.add(
                "a batch: kind and message size of its tests are not printed, its rows are not read", line
            )
            return
        size = self._size()
        if size is None:
            self.warnings.add(f"the message size of {quoted(self._test or 'the test')} is not known", line)
            return
        checked = "-V" in self.request.argv and self._is_latency
        wrong = 1 if self._invalid else 0 if checked else None
        point = MessagePoint(size, self._dtype(size), self.request.place)
        ranks = 1 if "-l" in self.request.argv else 2
        figures = self._figures(numbers, line)
        self._hold(size, numbers, line)
        operation = self.request.operation or _operation(self._test)
        samples = whole(numbers[0].split(".")[0])
        self.add(BenchmarkRow(operation, point, ranks, figures, samples, wrong, line))

    def _figures(self, numbers: Sequence[str], line: int) -> dict[str, Quantity]:
        time, rate = ("latency", "algbw") if self._is_latency else ("overhead", "bandwidth")
        if len(numbers) == 4:
            named = [(time, 1), (rate, 2), ("message_rate", 3)]
        else:
            named = [(f"{time}_{self._percentile}", 1), (time, 3), (rate, 5), ("message_rate", 7)]
        found: dict[str, Quantity] = {}
        for name, column in named:
            unit, scale = {rate: ("GB/s", _MEBI), "message_rate": ("1/s", 1.0)}.get(name, ("s", 1e-6))
            value = self.figure(name, numbers[column], line, scale)
            if value is not None:
                found[name] = Quantity(value, unit)
        return found

    def _hold(self, size: int, numbers: Sequence[str], line: int) -> None:
        """Compare the size with time times bandwidth, apart from rounding: another size may have been sent."""
        if len(numbers) != 8:
            return
        time, rate = (number(numbers[column]) or 0.0 for column in (3, 5))
        low, high = ((time + way * 0.0006) * (rate + way * 0.006) * 1.048576 for way in (-1, 1))
        if time > 0 and rate > 0 and not low * 0.98 <= size <= high * 1.02:
            self.warnings.add(f"the size is not {size}: time and bandwidth make it {time * rate * 1.048576:.0f}", line)

    @property
    def _test(self) -> str:
        return self.request.option("-t") or self._box.get("Test", "")

    @property
    def _is_latency(self) -> bool:
        if self._kind and not self._csv:
            return self._kind == "latency"
        test = self._test
        return "latency" in test or test.endswith("_lat") or test in _LATENCY_TESTS

    def _size(self) -> int | None:
        """Return the message's bytes. Scatter-gather lists (`-s 16,48`, `-s 1024:16`) are one message."""
        if (size := whole(self._box.get("Message size", ""))) is not None:
            return size
        total = 0
        for part in filter(None, self.request.option("-s").split(",")):
            bytes_, _, times = part.partition(":")
            one, many = whole(bytes_), whole(times or "1")
            if one is None or many is None:
                return None
            total += one * many
        if total:
            return total
        sizes = {point.size for point in self.request.points}
        return sizes.pop() if len(sizes) == 1 else None

    def _dtype(self, size: int) -> str:
        """Return the required dtype at this size, as bytes have no type."""
        return next((point.dtype for point in self.request.points if point.size == size), "uint8")


def _like_number(token: str) -> bool:
    return number(token.replace(",", "")) is not None


def _operation(test: str) -> str:
    """Return the operation of a test: `send_recv` of tag_lat and stream_bw, `put` of put_lat."""
    test = test.removeprefix("ucp_")
    known = next((name for start, name in _OPERATIONS if test.startswith(start)), "")
    return known or re.split(r"[ _/]", test)[0]
