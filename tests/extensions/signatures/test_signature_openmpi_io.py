"""Failed reads and writes in Open MPI's parallel I/O."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import kind_and_key, matches

POSIX = "mca_fbtl_posix_"


@pytest.mark.parametrize(
    ("text", "read_as", "priority"),
    [
        (f"{POSIX}pwritev: error in (p)write(v):Bad address", "error Bad-address@fbtl_posix_pwritev", Priority.CAUSE),
        (f"[vm:7] {POSIX}pwritev: error in writev:Bad address", "error Bad-address@fbtl_posix_pwritev", Priority.CAUSE),
        (
            f"{POSIX}preadv_single: error in (p)read(v):Input/output error",
            "error Input-output-error@fbtl_posix_preadv_single",
            Priority.CAUSE,
        ),
        (
            f"{POSIX}ipreadv: error in aio_read(): errno 22 Invalid argument",
            "error Invalid-argument@fbtl_posix_ipreadv",
            Priority.CAUSE,
        ),
        (
            f"{POSIX}ipwritev: could not allocate memory",
            "out_of_memory could-not-allocate-memory@fbtl_posix_ipwritev",
            Priority.CAUSE,
        ),
        (
            "mca_sharedfp_sm_file_open: Error, unable to open file for mmap: /tmp/x.sm",
            "error Error-unable-to-open-file-for-mmap@sharedfp_sm_file_open",
            Priority.CAUSE,
        ),
    ],
)
def test_a_file_that_was_not_read_or_written(text: str, read_as: str, priority: Priority) -> None:
    (found,) = matches("openmpi_io", text)
    assert (kind_and_key(found), found.priority, found.fatal) == (read_as, priority, True)


def test_a_file_that_is_not_there_is_no_proof_of_a_failure() -> None:
    (found,) = matches("openmpi_io", "fs_file failed, error code 42")
    assert (kind_and_key(found), found.fatal) == ("error failed@fs_file", False)


@pytest.mark.parametrize(
    "text",
    [
        "[vm:7] sharedfp_sm_file_open: allocated shared file pointer struct.",
        "[vm:7] mca_sharedfp_lockedfile_component_file_query: error opening lock file",
        "[vm:7] mca: base: components_register: found loaded component posix (mca_fbtl_posix.so)",
        "mca_fbtl_posix_pwritev",
    ],
)
def test_talk(text: str) -> None:
    assert matches("openmpi_io", text) == []
