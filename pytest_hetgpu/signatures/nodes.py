"""Our own words on nodes: what could not be made ready, and what was lost while a command ran (see `execute`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._rules import Rule, RuleDialect
from pytest_hetgpu.signatures.base import Reading

_NOT_READY, _LOST, _PREFLIGHT = "hetgpu: not ready: ", "hetgpu: node ", "hetgpu: preflight: "
_PARTS = "sshd|ssh|image|engine|network|python3|container|disk"


class Nodes(RuleDialect):
    """Lines that start with `hetgpu:`; what follows is in the words of the runtime that met it."""

    rules = (
        Rule(
            _NOT_READY,
            Kind.LAUNCH_FAILURE,
            "not-ready@{part}",
            pattern=rf"^hetgpu: not ready: (?P<detail>(?:.*?\b(?P<part>{_PARTS})\b)?.*)",
        ),
        Rule(
            _LOST,
            Kind.NETWORK_FAILURE,
            "lost@node",
            pattern=r"^hetgpu: node (?P<detail>.* was lost: .*)",
        ),
        Rule(
            _PREFLIGHT,
            Kind.LAUNCH_FAILURE,
            "preflight@{kind}",
            pattern=rf"^hetgpu: preflight: (?P<detail>.*\((?P<kind>{'|'.join(kind.value for kind in Kind)})\).*)",
        ),
    )

    def reading(self, rule: Rule, groups: Mapping[str, str], line: str, number: int) -> Reading:
        reading = super().reading(rule, groups, line, number)
        if rule.trigger == _LOST and "container ended" in groups.get("detail", ""):
            return replace(reading, signature=replace(reading.signature, kind=Kind.CRASH, key="lost@container"))
        if rule.trigger == _PREFLIGHT and "kind" in groups:
            return replace(reading, signature=replace(reading.signature, kind=Kind(groups["kind"])))
        return reading
