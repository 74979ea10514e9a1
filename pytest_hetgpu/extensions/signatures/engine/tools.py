"""Programs around a program: managers of jobs, launchers and engines, which begin their lines with their names."""

from __future__ import annotations

TOOLS = r"srun|salloc|sbatch|scancel|slurmstepd|slurmd|flux-\w+|mpirun|mpiexec|prterun|docker|timeout"
"""A regular expression for any of them."""
