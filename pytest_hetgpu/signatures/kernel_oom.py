"""Memory that ran out: the kernel's OOM killer, Slurm's and the C++ library's word for it."""

from __future__ import annotations

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect

_MEMORY = Kind.OUT_OF_MEMORY


class KernelOom(RuleDialect):
    """The kernel's texts are those of mm/oom_kill.c."""

    rules = (
        Rule("ut of memory: Kill", _MEMORY, "oom-kill@kernel", pattern=r"(?P<detail>[Oo]ut of memory: Kill.*)"),
        Rule("oom-kill:", _MEMORY, "oom-kill@kernel", pattern=r"(?P<detail>oom-kill:constraint=\w+)"),
        Rule("oom-kill event", _MEMORY, "oom-kill@kernel", pattern=r"(?P<detail>[Dd]etected \d+ oom-kill event.*)"),
        Rule("oom_kill event", _MEMORY, "oom-kill@kernel"),
        Rule("exceeded memory limit", _MEMORY, "memory-limit@slurm"),
        Rule("killed by signal: Bus error", _MEMORY, "no-space@dev-shm", pattern=r"Bus error.*shared memory"),
        Rule("std::bad_alloc", _MEMORY, "bad_alloc@libstdc"),
    )
