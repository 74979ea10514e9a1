"""Runs programs under a real mpirun, and parses the records of their ranks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import pytest_hetgpu
from pytest_hetgpu.analysis.logs.records import RecordReader, Records

PROGRAMS = Path(pytest_hetgpu.__file__).parent / "remote"
LIMIT = 60.0  # seconds; no run here takes ten
TRANSPORTS = {
    "ob1": ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"),
    "ucx": ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"),
}
both_transports = pytest.mark.parametrize("transport", TRANSPORTS)


@dataclass(frozen=True)
class Ran:
    returncode: int
    output: bytes
    ended: float
    records: Records

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")


Mpirun = Callable[..., Ran]


def runner(stack_prefix: Path, folder: Path) -> Mpirun:
    """Run `program` (a path, or the source of one that lies beside the harness) on so many ranks."""

    def run(program: Path | str, *args: str, ranks: int = 2, transport: str = "ob1", **variables: str) -> Ran:
        if isinstance(program, str):
            source = f"import sys\nsys.path.insert(0, {str(PROGRAMS)!r})\n{program}"
            program = folder / "program.py"
            program.write_text(source)
        argv = (
            *(f"{stack_prefix}/bin/mpirun", "--oversubscribe", "-np", str(ranks), *TRANSPORTS[transport]),
            *("env", "UCX_TLS=tcp,self", *(f"{name}={value}" for name, value in variables.items())),
            *(f"{stack_prefix}/bin/python", "-m", "mpi4py", str(program), *args),
        )
        env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        reader = RecordReader()
        for line in done.stdout.split(b"\n"):
            reader.feed(line)
        return Ran(done.returncode, done.stdout, time.time(), reader.finish())

    return run
