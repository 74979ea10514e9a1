"""ssh: hosts that a launcher could not reach."""

from __future__ import annotations

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect

_LAUNCH = Kind.LAUNCH_FAILURE


class Ssh(RuleDialect):
    """OpenSSH's client."""

    rules = (
        Rule(
            "ssh: Could not resolve hostname",
            _LAUNCH,
            "no-host@ssh",
            pattern=r"ssh: (?P<detail>Could not resolve hostname.*)",
        ),
        Rule(
            "ssh: connect to host",
            _LAUNCH,
            "{reason}@ssh",
            pattern=r"ssh: connect to host (?P<detail>\S+ port \d+: (?P<reason>\S.*?)\s*$)",
        ),
        Rule("Host key verification failed", _LAUNCH, "host-key@ssh"),
        Rule(
            "Permission denied (",
            _LAUNCH,
            "permission-denied@ssh",
            pattern=r"(?P<detail>Permission denied \([\w,-]+\))",
        ),
    )
