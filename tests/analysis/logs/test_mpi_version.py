"""Names and versions in version strings of MPI libraries."""

from __future__ import annotations

import pytest

from pytest_hetgpu.analysis.logs.mpi_version import fact_name, parse_mpi_version


@pytest.mark.parametrize(
    ("library", "name", "version", "fact"),
    [
        (
            "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11",
            "Open MPI",
            "5.0.11",
            "openmpi",
        ),
        ("MPICH Version: 5.0.2 MPICH Release date: Thu Aug", "MPICH", "5.0.2", "mpich"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "Intel MPI", "2021.18", "intelmpi"),
        ("MPI VERSION    : CRAY MPICH version 8.1.29.1 (ANL base 3.4a2)", "CRAY MPICH", "8.1.29.1", "craympich"),
        ("something else", "", "", ""),
        ("", "", "", ""),
    ],
)
def test_banner(library: str, name: str, version: str, fact: str) -> None:
    assert parse_mpi_version(library) == (name, version)
    assert fact_name(name) == fact
