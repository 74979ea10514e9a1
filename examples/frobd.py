"""Parse complaints of frobd about its fabric (src/frobd/log.c)."""

from __future__ import annotations

from pytest_hetgpu.extensions.signatures.base import Weight
from pytest_hetgpu.extensions.signatures.engine.rules import Rule, RuleDialect
from pytest_hetgpu.model.verdict import Kind


class Frobd(RuleDialect):
    """Lines that start with `frobd:`."""

    rules = (
        # The format in log.c is `frobd: lost %s: %s`.
        Rule("frobd: lost ", Kind.NETWORK_FAILURE, "lost@frobd", pattern=r"frobd: lost (?P<host>\S+): (?P<detail>.+)"),
        # Printed by every start without hardware; runs go on.
        Rule("frobd: no hardware"),
        Rule("frobd: retry ", Kind.ERROR, "retry@frobd", Weight.SYMPTOM, certain=False),
    )
