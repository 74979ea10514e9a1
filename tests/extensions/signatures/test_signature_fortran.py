"""The run-time libraries of Fortran, and words around a crash that are none of it."""

from __future__ import annotations

import pytest

from pytest_hetgpu.extensions.signatures.base import Priority
from tests.extensions.signatures.parsing import matches, parse_all

GFORTRAN = """
Program received signal SIGSEGV: Segmentation fault - invalid memory reference.

Backtrace for this error:
#0  0x7f7bd9c2ad21 in ???
#1  0x7f7bd9c29ef5 in ???
#2  0x7f7bd99e008f in ???
#3  0x55d5c6a0b1e9 in __grid_MOD_fill
	at /src/grid.f90:12
#4  0x7f7bd9e0b1e9 in PMPI_Bcast
#5  0x55d5c6a0b2d0 in main
	at /src/heat.f90:3
"""


INTEL = """forrtl: severe (174): SIGSEGV, segmentation fault occurred
Image              PC                Routine            Line        Source
heat2d_impi        0000000000406E5A  for__signal_handl     Unknown  Unknown
libpthread-2.17.s  00002B0D2D1D5630  Unknown               Unknown  Unknown
heat2d_impi        0000000000404C2B  compute_flux_              12  heat.f90
libmpi.so.12       00002B0D2D1D5630  PMPI_Barrier          Unknown  Unknown
"""


@pytest.mark.parametrize(
    ("text", "key", "entry"),
    [
        (GFORTRAN, "SIGSEGV!__grid_MOD_fill", "PMPI_Bcast"),
        (INTEL, "SIGSEGV@heat2d!compute_flux_", "PMPI_Barrier"),
        (
            INTEL.replace("(174): SIGSEGV", "(71): integer divide by zero"),
            "SIGFPE@heat2d!compute_flux_",
            "PMPI_Barrier",
        ),
        ("Program received signal SIGABRT: Process abort signal.", "SIGABRT", None),
    ],
)
def test_fortrans_run_time_libraries(text: str, key: str, entry: str | None) -> None:
    (crash,) = parse_all(text, "fortran")
    assert (crash.kind.value, crash.key, crash.entry_point) == ("crash", key, entry)


@pytest.mark.parametrize(
    ("text", "key", "function"),
    [
        (
            "At line 19 of file ocean.f90 (unit = 17, file = 'forcing.dat')\nFortran runtime error: End of file\n\n"
            "Error termination. Backtrace:\n#0  0x7f0e3b4218c2 in ???\n#5  0x7f0e3b6623fa in ???\n"
            "#6  0x55634f549721 in __grid_mod_MOD_read_forcing\n\tat /src/ocean.f90:19\n#7  0x55634f54a5e5 in ocean",
            "End-of-file@fortran",
            "__grid_mod_MOD_read_forcing",
        ),
        ("Fortran runtime error: End of file", "End-of-file@fortran", None),
        (
            "ERROR STOP tracer budget does not close\n\nError termination. Backtrace:\n#3  0x56327455b6ca in ocean",
            "ERROR-STOP-tracer-budget-does-not-close@fortran",
            "ocean",
        ),
        ("thread 0: ERROR STOP bad input", "ERROR-STOP-bad-input@fortran", None),
        (
            "forrtl: severe (24): end-of-file during read, unit 10, file /in.dat",
            "end-of-file-during-read-unit-file@fortran",
            None,
        ),
    ],
)
def test_errors_of_fortran_are_no_crashes(text: str, key: str, function: str | None) -> None:
    """Take the library's message as key: a build without backtraces has the same."""
    (match,) = matches("fortran", text)
    told = match.signature
    assert (told.kind.value, told.key, told.function, told.signal, match.fatal) == (
        "error",
        key,
        function,
        None,
        True,
    )


def test_memory_that_fortran_asks_for_is_another_dialects() -> None:
    assert matches("fortran", "forrtl: severe (41): insufficient virtual memory") == []


def test_an_abort_of_the_launcher_explains_less_than_what_it_reports() -> None:
    text = "prterun: tpp.c:83: __pthread_tpp_change_priority: Assertion `new_prio == -1' failed."
    assert matches("glibc", text)[0].priority is Priority.RELAYED
    assert matches("glibc", text.replace("prterun", "heat"))[0].priority is Priority.CAUSE


def test_labels_within_a_line_are_no_part_of_an_exceptions_name() -> None:
    text = "terminate called after throwing an instance of '[0] std::bad_alloc[0] '\n  what():  [0] std::bad_alloc[0] "
    (match,) = matches("glibc", text)
    assert (match.signature.kind.value, match.signature.detail) == (
        "out_of_memory",
        "std::bad_alloc: std::bad_alloc",
    )
