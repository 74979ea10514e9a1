"""Files of rules of users: what they give, and how errors in them are reported."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_hetgpu.analysis.explain import explain
from pytest_hetgpu.cli.main import main
from pytest_hetgpu.config.known_failures.load import known_failures
from pytest_hetgpu.config.signature_rules.file import read, rule_schema
from pytest_hetgpu.config.signature_rules.load import signature_rules
from pytest_hetgpu.errors import KnowledgeError

LICENCE = """
rules:
  market-no-licence:
    trigger: 'market: cannot get a licence'
    kind: launch_failure
    key: no-licence@{server}
    pattern: cannot get a licence from (?P<server>\\w+)
    example: 'market: cannot get a licence from lic1'
    example_key: no-licence@lic1
"""
DNS = """
rules:
  ssh-no-host:
    trigger: Could not resolve hostname
    kind: network_failure
    key: dns@site
    example: 'ssh: Could not resolve hostname n9: Name or service not known'
"""


@pytest.fixture
def write(tmp_path: Path) -> Path:
    return tmp_path / "mine.yaml"


def keys(tmp_path: Path, text: str, *files: Path) -> list[str]:
    log = tmp_path / "log"
    log.write_text(text)
    found = explain(log, known_failures(), signature_rules(files))
    assert not found.failed
    return [one.key for one in (*filter(None, (found.signature,)), *found.others)]


def test_a_rule_gives_a_key(tmp_path: Path, write: Path) -> None:
    write.write_text(LICENCE)
    assert keys(tmp_path, "x\nmarket: cannot get a licence from lic7 now\n", write) == ["no-licence@lic7"]
    assert keys(tmp_path, "x\nmarket: cannot get a licence from lic7 now\n") == []


def test_a_rule_replaces_the_shipped_one_of_its_id(tmp_path: Path, write: Path) -> None:
    write.write_text(DNS)
    text = "ssh: Could not resolve hostname n9: Name or service not known\nssh: connect to host n9 port 22: No route\n"
    assert keys(tmp_path, text) == ["no-host@ssh", "No-route@ssh"]
    assert keys(tmp_path, text, write) == ["dns@site", "No-route@ssh"]


def test_a_later_file_replaces_rules_of_an_earlier_one(tmp_path: Path, write: Path) -> None:
    later = tmp_path / "later.yaml"
    write.write_text(DNS + LICENCE.removeprefix("\nrules:"))
    later.write_text(LICENCE.replace("no-licence@", "later@"))
    text = "ssh: Could not resolve hostname n9\nmarket: cannot get a licence from lic1\n"
    assert keys(tmp_path, text, write, later) == ["dns@site", "later@lic1"]


def test_a_second_line_and_a_harmless_text(tmp_path: Path, write: Path) -> None:
    write.write_text(
        "defaults: {kind: timeout}\ndefinitions: {NAME: '[a-z]+'}\nrules:\n"
        "  quiet:\n    trigger: market closed\n    pattern: closed (?:for lunch|at night)\n"
        "    example: market closed for lunch\n"
        "  closed:\n    trigger: market closed\n    key: closed@{by}\n    then: 'by (?P<by>%{NAME})'\n    within: 2\n"
        "    example: [market closed, by order]\n    example_key: closed@order\n"
    )
    (rule,) = (rule for rule in read(write) if rule.key)
    assert (rule.kind.value, rule.fatal, rule.within) == ("timeout", True, 2)
    assert keys(tmp_path, "market closed at night\nmarket closed\n...\nby strike\n", write) == ["closed@strike"]


ROW = "rules:\n  a:\n    trigger: some text\n    key: a@b\n    example: some text\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "mine.yaml:1: the file must be a map, not an empty list"),
        (ROW.replace("key: a@b", "key: 'a*'"), "mine.yaml:4: rules.a.key: 'a*' must hold no blanks"),
        (ROW.replace("key:", "kye:"), "mine.yaml:4: unknown key 'kye' in rules.a"),
        (ROW + "    kind: crush\n", "mine.yaml:6: rules.a.kind: unknown value 'crush'"),
        (ROW + "    pattern: '(a'\n", "mine.yaml:2: rules.a: '(a'"),
        (ROW + "    pattern: '(?=a)'\n", "mine.yaml:2: rules.a: '(?=a)' is no RE2 pattern"),
        (ROW + f"    pattern: {'a' * 1001}\n", "mine.yaml:6: rules.a.pattern: "),
        (ROW + "    pattern: '%{NAME}'\n", "mine.yaml:2: rules.a: a pattern has %{NAME}, which is not in"),
        (ROW.replace("a@b", "a@{b}"), "mine.yaml:2: rules.a.key: no pattern has a group named b"),
        (ROW.replace("example: some", "example: other"), "mine.yaml:2: rules.a.example: the rule does not match it"),
        (ROW + "    example_key: c@d\n", "mine.yaml:2: rules.a.example: its key is a@b, not c@d"),
        (ROW + ROW.removeprefix("rules:\n"), "mine.yaml:6: "),
        ("rules:\n  a:\n    trigger: [\n", "mine.yaml:"),
        ("x: " + "a" * (2 << 20), "mine.yaml: "),
    ],
)  # fmt: skip
def test_an_error_names_file_row_and_field(
    write: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write.write_text(text)
    with pytest.raises(KnowledgeError) as error:
        read(write)
    assert said in str(error.value)
    write.with_name("log").write_text("x")
    assert main(["explain", str(write.with_name("log")), "--signatures", str(write)]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_editors_get_a_schema_that_the_files_fit() -> None:
    jsonschema.validate(yaml.safe_load(LICENCE), rule_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"rules": {"a": {"trigger": "some text"}}}, rule_schema())


PHASES = """
rules:
  site-reports-end:
    trigger: 'site: job ends'
    key: end@site
    phase: {phase}
    example: 'site: job ends because a rank has ended'
  site-bad-mesh:
    trigger: 'mesh is broken'
    key: mesh@site
    example: the mesh is broken
"""


def test_a_report_of_an_end_that_began_elsewhere_is_no_cause(tmp_path: Path, write: Path) -> None:
    text = "site: job ends because a rank has ended\nthe mesh is broken\n"
    write.write_text(PHASES.format(phase="communicating"))
    assert keys(tmp_path, text, write) == ["end@site", "mesh@site"]
    signature_rules.cache_clear()
    write.write_text(PHASES.format(phase="finishing"))
    assert keys(tmp_path, text, write)[0] == "mesh@site"
    assert keys(tmp_path, text.splitlines()[0], write) == ["end@site"]


def test_a_phase_is_one_of_the_known_ones(write: Path) -> None:
    write.write_text(PHASES.format(phase="ended"))
    with pytest.raises(KnowledgeError, match=r"site-reports-end\.phase: unknown value 'ended' \(known: .*starting"):
        read(write)
