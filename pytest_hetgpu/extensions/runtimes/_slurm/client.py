"""The Slurm client programs of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from pytest_hetgpu.errors import NotHere
from pytest_hetgpu.model.credentials import without_credentials

_PATIENCE = 30.0  # seconds for an answer of the controller
# Users of a site without munge authenticate with SLURM_JWT.
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a client, without the variables of a job that this process may run in.

    It also lacks credentials, because srun gives its environment to the nodes.
    """
    ours = {
        name: value for name, value in without_credentials(environ).items() if not name.startswith(("SLURM_", "SRUN_"))
    }
    kept = {name: environ[name] for name in _KEPT if name in environ}
    # This package parses states and times.
    return {**ours, **kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def program(name: str) -> str:
    """Return the path of a client; raise NotHere with installation advice if there is none."""
    found = shutil.which(name)
    if found is None:
        raise NotHere(
            f"there is no {name} in PATH, which runtime slurm needs: run on a login node of the cluster "
            "(Debian: apt-get install slurm-client)"
        )
    return found


def ask(*argv: str) -> tuple[str, str]:
    """Return stdout and stderr of a client; stdout is "" if it fails."""
    try:
        done = subprocess.run(
            argv,
            env=environment(os.environ),
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return ("" if done.returncode else out), err


def fields(line: str) -> dict[str, str]:
    """Split a line of `scontrol -o show` into its words `NAME=VALUE`."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def jobs(job: str) -> Sequence[Mapping[str, str]]:
    """Return the controller's record of a job, one entry per component; () if it has none any more."""
    out, _ = ask("scontrol", "-o", "show", "job", job)
    found = [fields(line) for line in out.splitlines()]
    return sorted((one for one in found if "JobId" in one), key=lambda one: int(one.get("HetJobOffset", "0")))


def partition(name: str) -> Mapping[str, str]:
    """Return the controller's record of a partition; {} if it does not answer."""
    out, _ = ask("scontrol", "-o", "show", "partition", name)
    return fields(out)
