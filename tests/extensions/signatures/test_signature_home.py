"""A missing home directory."""

from __future__ import annotations

from pathlib import Path

from pytest_hetgpu.analysis.logs.parse import read_evidence

# opal/mca/base/mca_base_var.c, opal/runtime/help-opal-runtime.txt
TEXT = """\
[vm:00714] Error: Unable to get the user home directory
--------------------------------------------------------------------------
It looks like opal_init failed for some reason; your parallel process is
likely to abort.  There are many reasons that a parallel process can
fail during opal_init; some of which are due to configuration or
environment problems.  This failure appears to be an internal failure;
here's some additional information (which may only be relevant to an
Open MPI developer):

  mca_base_var_init failed
  --> Returned value -1 instead of OPAL_SUCCESS
--------------------------------------------------------------------------
"""


def test_home_is_named_under_the_key_of_the_help_text(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_text(TEXT)
    (found,) = read_evidence(path).signatures
    assert (found.key, found.line) == ("failed@opal_init!mca_base_var_init", 1)
    assert found.detail == "HOME is not set, and the user database names no home directory"
