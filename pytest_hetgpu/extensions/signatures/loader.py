"""Programs and libraries that could not be started or loaded: the dynamic loader, exec, env, shells, Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, Priority
from pytest_hetgpu.extensions.signatures.engine.rules import MatchRule, RuleParser
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_LIBRARY = Kind.MISSING_LIBRARY
_LAUNCH = Kind.LAUNCH_FAILURE
_LOADING = r"error while loading shared libraries: "
# Errors of execve, open and chdir: only these make a line `NAME: REASON` a program that could not be started.
_REASON = (
    r"(?P<detail>No such file or directory|Permission denied|Exec format error|required file not found|not found|"
    r"command not found|[Ii]s a directory|cannot execute(?: binary file)?(?:: .*)?|bad interpreter.*)\s*$"
)
_QUOTED = r"['\u2018\"`]?(?P<program>[^'\u2019\"`\s]+)['\u2019\"`]?"
# Prefixes of shells: `bash: line 1: `, `/bin/sh: 1: `, `-bash: `, `job.sh: line 7: `, `zsh:1: `
_SHELL = (
    r"^(?:(?:-|\S*/)?(?:ba|da|z|k|c|tc|a)?sh(?:\[\d+\])?|\S+\.(?:sh|sbatch|slurm|job|pbs)|\S*slurm_script|\S*/job\d+/\S+)"
    r":(?: (?:line )?\d+:| -c:|\d+:)*(?: exec:)? "
)
_WRAPPER = (
    r"^(?:\S*/)?(?:env|nohup|timeout|nice|stdbuf|numactl|taskset|time|xargs|sudo|strace|setsid): "
    rf"(?:failed to (?:run|execute) (?:command )?|execvp: |exec: |execution of )?{_QUOTED}(?: failed)?: "
)
_ENDS = (
    ": No such file or directory",
    ": Permission denied",
    ": Exec format error",
    ": cannot execute",
    ": command not found",
    ": not found",
    ": bad interpreter",
    ": required file not found",
    "s a directory",
)
_LINE = lazy(r"\S{1,200}: (?:line )?(\d{1,6}): ")
# Without these no rank runs, whatever a script does next.
_LAUNCHERS = ("mpirun", "mpiexec", "orted", "prted", "prterun", "srun", "aprun", "jsrun", "flux", "torchrun", "python")


class Loader(RuleParser):
    """glibc's ld.so (elf/dl-*.c, elf/rtld.c), env of coreutils, shells, execvp of several launchers."""

    rules = (
        MatchRule(
            "cannot open shared object file",
            _LIBRARY,
            "missing-library@{name}",
            pattern=_LOADING + r"(?P<detail>(?P<name>[^\s:]+): cannot open.*)",
        ),
        # dlopen's errors as programs print them; libraries that log them continue without the file.
        MatchRule(
            "cannot open shared object file",
            _LIBRARY,
            "missing-library@{name}",
            Priority.RELAYED,
            pattern=r"^(?!.*(?:[Ww]arn|WARN|INFO|DEBUG|TRACE|[Ii]gnor|NCCL|UCX|UCC|libibverbs|libfabric|mca_|LD_PRELOAD"
            r"|Error: ))[^\n]{0,300}?(?:^|[\s:('\"])(?P<detail>(?P<name>(?:/\S{1,300}/)?lib[^\s:/]{1,100}\.so[\d.]*): "
            r"cannot open shared object file)",
            fatal=False,
        ),
        MatchRule(
            "error while loading shared libraries",
            _LIBRARY,
            "bad-library@{name}",
            pattern=_LOADING + r"(?P<detail>(?P<name>[^\s:]+): .*)",
        ),
        MatchRule(
            "symbol lookup error",
            _LIBRARY,
            "undefined-symbol@{symbol}",
            pattern=r"(?P<detail>undefined symbol: (?P<symbol>[\w.@]+))",
        ),
        MatchRule(
            "relocation error: ",
            _LIBRARY,
            "undefined-symbol@{symbol}",
            pattern=r"symbol (?P<symbol>\w+),? .*(?P<detail>not defined in .*)",
        ),
        MatchRule(
            "' not found (required by",
            _LIBRARY,
            "missing-version@{version}",
            pattern=r"(?P<detail>version [`'](?P<version>[\w.+-]+)' not found)",
        ),
        MatchRule(
            "Inconsistency detected by ld.so",
            _LIBRARY,
            "inconsistency@ld.so",
            pattern=r"(?P<detail>dl-\w+\.c: \d+: .*)",
        ),
        # NAME in LD_PRELOAD: the loader goes on without it
        MatchRule("from LD_PRELOAD cannot be preloaded"),
        # execvp: Hydra (utils/launch, pmiserv), slurm's task.c, runc and crun, flux-shell, PALS
        MatchRule(
            "execvp error",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"execvp error on file (?P<program>\S+) \((?P<detail>[^()]*)\)",
        ),
        MatchRule(
            "execve(): ", _LAUNCH, "exec@{detail}", pattern=r"execve\(\): [^\s:]+: (?P<detail>Exec format error)"
        ),
        MatchRule(
            "execve(): ",
            _LAUNCH,
            "no-program@{program}",
            pattern=rf"execve\(\): (?:bad interpreter\([^()]*\): )?(?P<program>[^\s:]+): {_REASON}",
        ),
        MatchRule(
            "can't open file '",
            _LAUNCH,
            "no-program@python",
            pattern=r"(?P<detail>can't open file '.*)",
        ),
        MatchRule(
            "cannot start ",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"^cannot start (?P<program>[^\s:]+): (?P<detail>.*)",
        ),
        MatchRule(
            "Fatal Python error: ",
            _LAUNCH,
            "init@python",
            pattern=r"(?P<detail>Fatal Python error: (?:init|Py_Init|Failed to import).*)",
        ),
        MatchRule(
            "No module named ",
            _LAUNCH,
            "no-module@{module}",
            pattern=r"^\S*python[\d.]*: (?P<detail>No module named (?P<module>[\w.']+))",
        ),
        *(
            MatchRule(words, _LAUNCH, "no-program@{program}", pattern=form + _REASON)
            for words in _ENDS
            for form in (_WRAPPER, _SHELL + r"(?P<program>[^\s:]+): (?:[^\s:]+: (?=bad interpreter))?")
        ),
        # Any script's own name may stand first; csh begins with a capital.
        MatchRule(
            "ommand not found",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"(?:^|: )(?P<program>[^\s:]+): (?P<detail>[Cc]ommand not found)\.?\s*$",
        ),
        # Programs that load a library themselves and end without it (cuDNN), and musl's loader.
        MatchRule(
            "Could not load library ",
            _LIBRARY,
            "missing-library@{name}",
            pattern=r"^Could not load library (?P<name>lib[^\s:]+\.so[\d.]*?)\.? Error: (?P<detail>.*)",
            fatal=False,
        ),
        MatchRule(
            "Error loading shared library ",
            _LIBRARY,
            "missing-library@{name}",
            pattern=r"^(?P<detail>Error loading shared library (?P<name>[^\s:]+): .*)",
        ),
        MatchRule(
            "Error relocating ",
            _LIBRARY,
            "undefined-symbol@{symbol}",
            pattern=r"^(?P<detail>Error relocating \S+: (?P<symbol>\w+): symbol not found)",
        ),
    )

    def build_match(self, rule: MatchRule, groups: Mapping[str, str], line: LogLine) -> FailureMatch:
        """Return a program that could not be started; a script continues after such a command."""
        match = super().build_match(rule, groups, line)
        at = _LINE.match(line.text)
        if at and int(at[1]) > 1 and not _is_launcher(groups.get("program", "")):
            return replace(match, priority=Priority.RELAYED, fatal=False)
        return match


def _is_launcher(program: str) -> bool:
    return program.rpartition("/")[2].rstrip("0123456789.") in _LAUNCHERS
