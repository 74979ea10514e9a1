"""Programs and libraries that could not be started or loaded: the dynamic loader, exec, env, the shell, Python."""

from __future__ import annotations

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect

_LIBRARY = Kind.MISSING_LIBRARY
_LAUNCH = Kind.LAUNCH_FAILURE


class Loader(RuleDialect):
    """glibc's ld.so (elf/dl-*.c), env of coreutils, execvp of several launchers."""

    rules = (
        Rule(
            "cannot open shared object file",
            _LIBRARY,
            "missing-library@{name}",
            pattern=r"loading shared libraries: (?P<detail>(?P<name>[^\s:]+): cannot open.*)",
        ),
        Rule(
            "error while loading shared libraries",
            _LIBRARY,
            "bad-library@{name}",
            pattern=r"loading shared libraries: (?P<detail>(?P<name>[^\s:]+): .*)",
        ),
        Rule(
            "symbol lookup error",
            _LIBRARY,
            "undefined-symbol@{symbol}",
            pattern=r"(?P<detail>undefined symbol: (?P<symbol>[\w.@]+))",
        ),
        Rule(
            "' not found (required by",
            _LIBRARY,
            "missing-version@{version}",
            pattern=r"(?P<detail>version [`'](?P<version>[\w.+-]+)' not found)",
        ),
        Rule(
            "execvp error",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"execvp error on file (?P<program>\S+) \((?P<detail>[^()]*)\)",
        ),
        Rule(
            "cannot start ",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"^cannot start (?P<program>[^\s:]+): (?P<detail>.*)",
        ),
        Rule(
            ": No such file or directory",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"^(?:\S*/)?env: ['\u2018]?(?P<program>[^'\u2019\s]+)['\u2019]?: (?P<detail>No such file.*)",
        ),
        Rule(
            ": command not found",
            _LAUNCH,
            "no-program@{program}",
            pattern=r"(?P<program>[^\s:]+): (?P<detail>command not found)",
        ),
        Rule("can't open file '", _LAUNCH, "no-program@python", pattern=r"(?P<detail>can't open file .*)"),
    )
