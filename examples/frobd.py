"""Parse complaints of frobd about its fabric (src/frobd/log.c)."""

from __future__ import annotations

from pytest_hetgpu.api import Kind, MatchRule, Priority, RuleParser


class Frobd(RuleParser):
    """Lines that start with `frobd:`."""

    rules = (
        # The format in log.c is `frobd: lost %s: %s`.
        MatchRule(
            "frobd: lost ", Kind.NETWORK_FAILURE, "lost@frobd", pattern=r"frobd: lost (?P<host>\S+): (?P<detail>.+)"
        ),
        # Printed by every start without hardware; runs go on.
        MatchRule("frobd: no hardware"),
        MatchRule("frobd: retry ", Kind.ERROR, "retry@frobd", Priority.SYMPTOM, fatal=False),
    )
