"""Memory that ran out: reports of the kernel's OOM killer, limits, processes and threads, /dev/shm."""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.base import Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.verdict import Kind

_MEMORY = Kind.OUT_OF_MEMORY
_OOM = "oom-kill@kernel"
_COUNTED = "hetgpu: out of memory on "
_TOLD = r"^hetgpu: (?P<detail>out of memory on (?:this machine|(?P<host>[\w.-]{1,253})): .*"


class KernelOom(RuleParser):
    """Memory as the kernel, the shell, Slurm and the run-times of languages miss it."""

    rules = (
        # Our lines on counts of the kernel that rose during the run (oom_kills.py). Others may be why a machine's rose.
        MatchRule(_COUNTED, _MEMORY, _OOM, pattern=rf"{_TOLD} of its control group .*)"),
        MatchRule(_COUNTED, _MEMORY, _OOM, Priority.EXIT, pattern=rf"{_TOLD} of this machine .*)", fatal=False),
        # mm/oom_kill.c; `journalctl` and `dmesg` show it, and some centres append it to a job's output.
        MatchRule("ut of memory: Kill", _MEMORY, _OOM, pattern=r"(?P<detail>[Oo]ut of memory: Kill.*)"),
        MatchRule("oom-kill:", _MEMORY, _OOM, pattern=r"(?P<detail>oom-kill:constraint=\w+)"),
        MatchRule("invoked oom-killer", _MEMORY, _OOM, pattern=r"(?P<detail>\S+ invoked oom-killer)"),
        MatchRule("oom_reaper: reaped process", _MEMORY, _OOM, Priority.EXIT),
        MatchRule("earlyoom", _MEMORY, _OOM, pattern=r"(?P<detail>sending SIG(?:TERM|KILL) to process .*)"),
        MatchRule("systemd-oomd killed", _MEMORY, _OOM),
        # Slurm: src/plugins/task/cgroup/task_cgroup_memory.c, src/interfaces/jobacct_gather.c
        MatchRule("oom-kill event", _MEMORY, _OOM, pattern=r"(?P<detail>[Dd]etected \d+ oom-kill event.*)"),
        MatchRule("oom_kill event", _MEMORY, _OOM, pattern=r"(?P<detail>[Dd]etected \d+ oom_kill event.*)"),
        MatchRule(
            "exceeded memory limit", _MEMORY, "memory-limit@slurm", pattern=r"(?P<detail>exceeded memory limit.*)"
        ),
        MatchRule("memory limit at some point", _MEMORY, "memory-limit@slurm", fatal=False),
        MatchRule("Exceeded job memory limit", _MEMORY, "memory-limit@slurm"),
        MatchRule("Exceeded step memory limit", _MEMORY, "memory-limit@slurm"),
        # fork(2), pthread_create(3) and exec as shells and run-times report them
        MatchRule(": fork: retry: "),
        MatchRule(
            "fork: Cannot allocate memory",
            _MEMORY,
            "no-memory@fork",
            pattern=r"(?P<detail>fork: Cannot allocate memory)",
        ),
        MatchRule("fork rejected by pids controller", Kind.ERROR, "process-limit@fork"),
        MatchRule("fork: Resource temporarily unavail", Kind.ERROR, "process-limit@fork"),
        MatchRule(
            "Cannot allocate memory",
            _MEMORY,
            "no-memory@exec",
            pattern=r"execv[pe]\w*(?:\(\))?.*(?P<detail>Cannot allocate memory)",
        ),
        MatchRule(
            "libgomp: Thread creation failed",
            Kind.ERROR,
            "thread-limit@libgomp",
            pattern=r"(?P<detail>Thread creation.*)",
        ),
        MatchRule(
            "OMP: Error #34", Kind.ERROR, "thread-limit@openmp", pattern=r"(?P<detail>System unable to allocate.*)"
        ),
        MatchRule("blas_thread_init: pthread_create", Kind.ERROR, "thread-limit@openblas", fatal=False),
        # Shared memory; a page that is not available shows as the process's bus error.
        MatchRule(
            "o space left on device",
            _MEMORY,
            "no-space@dev-shm",
            pattern=r"(?P<detail>/dev/shm\b.{0,200}[Nn]o space left on device)",
            fatal=False,
        ),
        # C++'s operator new, the JVM (src/hotspot/os), Go's runtime, gfortran's and Intel's
        MatchRule("std::bad_alloc", _MEMORY, "bad_alloc@libstdc"),
        MatchRule(
            "java.lang.OutOfMemoryError", _MEMORY, "OutOfMemoryError@java", pattern=r"(?P<detail>OutOfMemoryError.*)"
        ),
        MatchRule("insufficient memory for the Java", _MEMORY, "no-memory@java"),
        MatchRule("runtime: out of memory", _MEMORY, "no-memory@go", pattern=r"(?P<detail>runtime: out of memory.*)"),
        MatchRule(
            "Error allocating ", _MEMORY, "no-memory@gfortran", pattern=r"(?P<detail>Error allocating \d+ bytes)"
        ),
        MatchRule(
            "forrtl: severe (41)",
            _MEMORY,
            "no-memory@forrtl",
            pattern=r"forrtl: (?P<detail>severe \(41\): insufficient virtual memory)",
        ),
    )
