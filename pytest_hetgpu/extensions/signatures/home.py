"""A missing home directory: Open MPI 5 requires one (opal/mca/base/mca_base_var.c, `mca_base_var_init`)."""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind


class Home(RuleParser):
    """Parser of that message. The key is that of the help text that follows it."""

    rules = (
        MatchRule(
            "Error: Unable to get the user home directory",
            Kind.LAUNCH_FAILURE,
            "failed@opal_init!mca_base_var_init",
            detail="HOME is not set, and the user database names no home directory",
        ),
    )
