"""Parser of the document of nccl-tests' `-J FILE`: src/util.cu, versions 1 to 3.

The document is one line, its keys in the order of the run. Times are in us, bandwidths in GB/s with six decimals.
`nwrong` is null if nothing was checked. Truth is "true" and "false", and a NaN is the string "nan". `devices` holds
only the first GPU of each process. `env` is the whole environment and is never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeGuard

from pytest_hetgpu.extensions.readers import _nccl
from pytest_hetgpu.extensions.readers.base import MOST_ROWS, OutputParser, whole
from pytest_hetgpu.model.program_output import BenchmarkResult, BenchmarkRow, Quantity
from pytest_hetgpu.model.records import MessagePoint

_LONGEST = 64 << 20
_KEYS = {
    "time": ("latency", "s", 1e-6),
    "cpu_time": ("cpu_time", "s", 1e-6),
    "alg_bw": ("algbw", "GB/s", 1.0),
    "bus_bw": ("busbw", "GB/s", 1.0),
}
_PER_ITERATION = {
    "min_us": ("iteration_min", "s", 1e-6),
    "max_us": ("iteration_max", "s", 1e-6),
    "p99_us": ("iteration_p99", "s", 1e-6),
    "cv_pct": ("iteration_variation", "%", 1.0),
}
_PLACES = (("out_of_place", ""), ("in_place", "in"))


class NcclDocument:
    """The document: it keeps its line, and parses it at the end. Warnings go to the output parser that owns it."""

    def __init__(self, reader: OutputParser) -> None:
        self._reader = reader
        self._text = ""
        self._count = 0
        self._root: dict[str, Any] = {}
        self.slow = False
        self.failed: tuple[str, ...] = ()

    def accept(self, line: str) -> bool:
        """Keep the line if it is a document, which begins with `{"version"`. The last document counts."""
        if not line.lstrip().startswith('{"version"'):
            return False
        self._text = line if len(line) <= _LONGEST else ""
        self._count += 1
        return True

    def rows(self) -> tuple[BenchmarkRow, ...]:
        """Return its rows, none without a readable document."""
        if not self._count:
            return ()
        if self._count > 1:
            self._reader.warnings.add(f"{self._count} JSON documents: the last is read")
        try:
            root = json.loads(self._text)
        except (ValueError, RecursionError):
            self._reader.warnings.add("the JSON cannot be read: it breaks off, or holds a number that is none")
            return ()
        self._root = root
        self._verdicts()
        found = tuple(self._measured())
        if not found:
            self._reader.warnings.add("the JSON has no results")
        return found

    def with_library_version(self, reading: BenchmarkResult) -> BenchmarkResult:
        """Add the library's version to the result if only the document has it."""
        code = self._root.get("nccl_version")
        library = _nccl.library_version(str(code)) if isinstance(code, int) else ""
        return replace(reading, versions={"nccl": library, **reading.versions}) if library else reading

    def _verdicts(self) -> None:
        bounds = _map(self._root, "out_of_bounds")
        # Up to 2.17.8 the key is misspelt.
        mean = _map(self._root, "average_bus_bandwidth") or _map(self._root, "average_bus_bandwidith")
        said = [f"Out of bounds values : {bounds.get('count')} FAILED"] if bounds.get("okay") == "false" else []
        self.slow = mean.get("okay") == "false"
        self.failed = (*said, *(["Avg bus bandwidth : FAILED"] if self.slow else []))

    def _measured(self) -> Iterator[BenchmarkRow]:
        ranks, operation = self._ranks(), self._operation()
        results = self._root.get("results")
        for result in (results if isinstance(results, list) else [])[:MOST_ROWS]:
            if not isinstance(result, dict):
                continue
            size, dtype = result.get("size"), result.get("type")
            if not _count(size) or not isinstance(dtype, str):
                self._reader.warnings.add("a result of the JSON without size or type")
                continue
            for key, place in _PLACES:
                body = result.get(key)
                if isinstance(body, dict):
                    point = MessagePoint(size, _nccl.TYPES.get(dtype, dtype), place)
                    figures = self._figures(body, _KEYS) | self._figures(
                        _map(result, f"{key}_per_iter"), _PER_ITERATION
                    )
                    yield BenchmarkRow(operation, point, ranks, figures, self._iterations(result), self._wrong(body))

    def _figures(self, body: dict[str, Any], keys: dict[str, tuple[str, str, float]]) -> dict[str, Quantity]:
        found: dict[str, Quantity] = {}
        for key, (name, unit, scale) in keys.items():
            if key in body:
                value = self._reader.figure(key, str(body[key]), 0, scale)
                if value is not None:
                    found[name] = Quantity(value, unit)
        return found

    def _wrong(self, body: dict[str, Any]) -> int | None:
        found = body.get("nwrong")
        if found is None:
            return None
        value = self._reader.figure("nwrong", str(found), 0)
        return None if value is None else int(value)

    def _iterations(self, result: dict[str, Any]) -> int | None:
        found = result.get("actual_iterations")
        aggregated = _map(self._root, "config").get("aggregated_iterations")
        return int(found * max(aggregated, 1)) if _count(found) and _count(aggregated) else None

    def _operation(self) -> str:
        args = self._root.get("args")
        program = args[0] if isinstance(args, list) and args and isinstance(args[0], str) else ""
        return _nccl.operation(program) or _nccl.asked_operation(self._reader.request)

    def _ranks(self) -> int | None:
        """Count ranks: processes in the group of the first, times GPUs and threads of each."""
        config = _map(self._root, "config")
        listed = config.get("devices")
        devices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        threads, gpus = config.get("nthreads"), config.get("ngpus")
        if not devices or not (_count(threads) and _count(gpus)):
            return self._reader.request.ranks
        group = devices[0].get("group")
        ranks = int(sum(one.get("group") == group for one in devices) * threads * gpus)
        if self._reader.request.ranks not in (None, ranks):
            self._reader.warnings.add(f"{self._reader.request.ranks} ranks were asked for, the job has {ranks}")
        return ranks


def _map(holder: dict[str, Any], key: str) -> dict[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and whole(str(value)[:40]) is not None
