"""Errors of Intel MPI at its start, `MPI startup(): TEXT`, from its libmpi 2021 (and 2018, for fabrics).

With I_MPI_DEBUG it prints much more in the same form; only lines that end a run are matched.
"""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_STARTUP = r"MPI startup\(\): "


class IntelMpi(RuleParser):
    """Fabrics and process managers that are not there."""

    rules = (
        MatchRule(
            "fabric is not available and fallback fabric is not enabled",
            Kind.TRANSPORT_UNAVAILABLE,
            "no-fabric@intel-mpi!{fabric}",
            pattern=rf"{_STARTUP}(?P<detail>(?P<fabric>[\w:]{{2,20}}) fabric is not available and fallback.*)",
        ),
        MatchRule(
            "MPI startup(): Error: Could not auto detect PMI version",
            Kind.LAUNCH_FAILURE,
            "no-pmi@intel-mpi",
            pattern=rf"{_STARTUP}Error: (?P<detail>Could not auto detect PMI version)",
        ),
        MatchRule(
            "MPI startup(): Error: Unknown PMI version",
            Kind.LAUNCH_FAILURE,
            "no-pmi@intel-mpi",
            pattern=rf"{_STARTUP}Error: (?P<detail>Unknown PMI version.*)",
        ),
        MatchRule(
            "MPI startup(): Error: failed to resolve hostname",
            Kind.NETWORK_FAILURE,
            "no-address@intel-mpi",
            pattern=rf"{_STARTUP}Error: (?P<detail>failed to resolve hostname.*)",
            fatal=False,
        ),
        MatchRule(
            "MPI startup(): Error: Failed to load",
            Kind.MISSING_LIBRARY,
            "no-library@intel-mpi",
            pattern=rf"{_STARTUP}Error: (?P<detail>Failed to load .*)",
            fatal=False,
        ),
        MatchRule(
            "MPI startup(): Failed to allocate memory",
            Kind.OUT_OF_MEMORY,
            "out-of-memory@intel-mpi",
            pattern=rf"{_STARTUP}(?P<detail>Failed to allocate memory)",
        ),
    )
