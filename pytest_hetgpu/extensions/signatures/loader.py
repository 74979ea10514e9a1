"""Programs and libraries that could not be started or loaded: the dynamic loader, exec, env, shells, Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy

_LINE = lazy(r"\S{1,200}: (?:line )?(\d{1,6}): ")
# Without these no rank runs, whatever a script does next.
_LAUNCHERS = ("mpirun", "mpiexec", "orted", "prted", "prterun", "srun", "aprun", "jsrun", "flux", "torchrun", "python")


class Loader(RuleParser, rows="loader"):
    """glibc's ld.so (elf/dl-*.c, elf/rtld.c), env of coreutils, shells, execvp of several launchers."""

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        """Return a program that could not be started; a script continues after such a command."""
        match = super().build_match(rule, groups, line)
        at = _LINE.match(line.text)
        if at and int(at[1]) > 1 and not _is_launcher(groups.get("program", "")):
            return replace(match, priority=Priority.RELAYED, fatal=False)
        return match


def _is_launcher(program: str) -> bool:
    return program.rpartition("/")[2].rstrip("0123456789.") in _LAUNCHERS
