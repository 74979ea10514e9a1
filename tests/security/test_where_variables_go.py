"""A matrix's variables are its ranks' alone: neither our process nor a launcher's loads what LD_PRELOAD names there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_hetgpu.config.matrix.reader import read
from pytest_hetgpu.model.job import Stack
from pytest_hetgpu.planning.expand import expand
from pytest_hetgpu.planning.placement import SiteFacts
from pytest_hetgpu.planning.plan import plan

HOSTILE = {
    "LD_PRELOAD": "/x/evil.so",
    "PATH": "/x",
    "PYTHONSTARTUP": "/x/evil.py",
    "BASH_ENV": "/x",
    "DOCKER_HOST": "tcp://x",
}
MATRIX = """\
name: m
hardware:
  here: {{env: {env}}}
  far: {{runtime: docker, image: debian, env: {env}}}
axes:
  placement: {{here: [here, here], far: [far, far]}}
  transport: {{t: {{family: auto, env: {env}}}}}
  workload: {{barrier: {{env: {env}}}}}
  more: {{m: {{env: {env}, launcher: {launcher}}}}}
"""
STACKS = {
    "openmpi-5": Stack("openmpi-5", "Open MPI", "5.0.11", "/s", "/s/bin/mpirun", "/s/bin/python", torch=True),
    "openmpi-4": Stack("openmpi-4", "Open MPI", "4.1.8", "/s", "/s/bin/mpirun", "/s/bin/python", torch=True),
    "mpich": Stack("mpich", "MPICH", "5.0.2", "/s", "/s/bin/mpirun", "/s/bin/python", torch=True),
}


@pytest.mark.parametrize("stack", STACKS)
def test_a_launcher_gets_none_of_them(tmp_path: Path, stack: str) -> None:
    file = tmp_path / "m.yaml"
    env = "{" + ", ".join(f"{name}: '{value}'" for name, value in HOSTILE.items()) + "}"
    file.write_text(MATRIX.format(env=env, launcher="mpirun").replace("{env:", f"{{mpi: {{stack: {stack}}}, env:", 1))
    before = dict(os.environ)
    document = read(file, {})
    for scenario in expand(document):
        job = plan(document, scenario, SiteFacts({**STACKS, "openmpi-5": STACKS["openmpi-5"]}, "/p"))
        assert set(job.command.env) <= {"HYDRA_LAUNCHER_EXTRA_ARGS", "OMPI_MCA_plm"}
        words = list(job.command.argv)
        assert "env" in words
        # They stand behind `env`, which only the ranks are started by.
        assert all(words.index(f"{name}={value}") > words.index("env") for name, value in HOSTILE.items())
    assert dict(os.environ) == before
